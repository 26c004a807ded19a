using MPI, NCCL, CUDA, Oceananigans
using Oceananigans.DistributedComputations
MPI.Init()
Ext  = Base.get_extension(Oceananigans, :OceananigansNCCLExt)
arch = DistributedComputations.NCCLDistributed(GPU(); partition = Partition(4, 4))
grid = TripolarGrid(arch; size = (1440, 800, 60), z = depth_faces, halo = (7, 7, 7))
model = HydrostaticFreeSurfaceModel(grid; free_surface = SplitExplicitFreeSurface(grid; substeps = 40),
                                    tracers = (:T, :S, :e), closure)
simulation = Simulation(model; Δt = 3minutes, stop_time = 20days)
add_callback!(simulation, progress, IterationInterval(20))
run!(simulation)
