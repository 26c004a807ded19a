// bench.cpp section, FluidX3D, FP16S
void main_setup() {
	const uint3 lbm_N = resolution(float3(1.0f, 1.0f, 1.0f), 163500u);
	LBM lbm(lbm_N, 2u, 2u, 2u, 0.05f);
	for(uint i=0u; i<20u; i++) {
		lbm.run(10u);
		print_info(to_string(lbm.get_t()));
	}
}
