//! The participants: the GPUs of this process, and the other processes that a launcher started.
//!
//! Rank, number of ranks and master come from the environment of torchrun, srun or mpirun. Processes meet at a small TCP
//! exchange: process 0 listens, the others connect, and whatever is exchanged goes through it. It carries no data of the
//! measurements, only addresses, times and verdicts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use ringleader_model::hostlist;

use crate::sys::LibraryError;

/// The first bytes on a connection, so that a stranger is not taken for a rank.
const GREETING: &[u8; 20] = b"ringleader-probe v1\n";
/// Between the port of torchrun's store and ours.
const PORT_OFFSET: u16 = 17;
/// Where nothing names a port.
const PORT: u16 = 29_517;
/// Largest message, bytes. Reports of thousands of ranks are smaller.
const MAX_MESSAGE: u64 = 64 << 20;

/// What a launcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankAssignment {
    /// Number of this process.
    pub rank: usize,
    /// Processes.
    pub n_ranks: usize,
    /// Number of this process on its node.
    pub local_rank: usize,
    /// Where process 0 listens.
    pub master: String,
    /// The launcher that said so.
    pub launcher: &'static str,
}

impl RankAssignment {
    /// Reads the environment through `get`. `None`: no launcher, this process is alone.
    ///
    /// # Errors
    /// If a launcher sets variables but not the meeting point, or its numbers are inconsistent.
    pub fn from_environment(
        get: impl Fn(&str) -> Option<String>,
        master: Option<&str>,
    ) -> Result<Option<Self>, LibraryError> {
        let number = |name: &str| get(name).and_then(|value| value.trim().parse::<usize>().ok());
        let found = [
            ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
            ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
            ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
            ("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        ]
        .into_iter()
        .find_map(|(launcher, rank, size, local)| {
            Some((launcher, number(rank)?, number(size)?, number(local)))
        });
        let Some((launcher, rank, n_ranks, local)) = found else { return Ok(None) };
        // A shell inside an allocation carries srun's variables of a single task.
        if n_ranks < 2 {
            return Ok(None);
        }
        if rank >= n_ranks {
            return Err(LibraryError::World(format!("{launcher} gives rank {rank} of {n_ranks}")));
        }
        let is_local = number("OMPI_COMM_WORLD_LOCAL_SIZE").or_else(|| number("MPI_LOCALNRANKS"))
            == Some(n_ranks)
            || launcher == "srun" && number("SLURM_NNODES") == Some(1);
        let host = get("MASTER_ADDR")
            .or_else(|| get("SLURM_LAUNCH_NODE_IPADDR").filter(|_| number("SLURM_NNODES") == Some(1)))
            .or_else(|| {
                let list = get("SLURM_JOB_NODELIST").or_else(|| get("SLURM_NODELIST"))?;
                hostlist::parse(&list).ok()?.into_iter().next()
            })
            .or_else(|| is_local.then(|| "127.0.0.1".to_owned()));
        let port = number("MASTER_PORT")
            .and_then(|port| u16::try_from(port).ok()?.checked_add(PORT_OFFSET))
            .unwrap_or(PORT);
        let master = match (master, host) {
            (Some(named), _)
                if named.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) =>
            {
                named.to_owned()
            }
            (Some(named), _) => format!("{named}:{port}"),
            (None, Some(host)) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
            (None, Some(host)) => format!("{host}:{port}"),
            (None, None) => {
                return Err(LibraryError::World(format!(
                    "{launcher} started {n_ranks} ranks, but nothing says where they meet; name rank 0's host: --master HOST"
                )));
            }
        };
        let local_rank = local.unwrap_or(0);
        Ok(Some(Self { rank, n_ranks, local_rank, master, launcher }))
    }
}

/// The connection of this process to the others.
#[derive(Debug)]
pub enum Wire {
    /// This process is alone.
    Alone,
    /// Process 0, with a connection to each other one, in their order.
    Hub(Vec<TcpStream>),
    /// Any other.
    Spoke(TcpStream),
}

impl Wire {
    /// Meets the other processes.
    ///
    /// # Errors
    /// If they are not all there by the deadline.
    pub fn meet(place: &RankAssignment, within: Duration) -> Result<Self, LibraryError> {
        let deadline = Instant::now() + within;
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            LibraryError::World(format!("{what} {}: {error}", place.master))
        };
        if place.rank == 0 {
            let port = place.master.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(PORT);
            // On all addresses: the master's name may be one of several of this node.
            let listener = TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port)))
                .map_err(|error| failed("listen for the other ranks at", &error))?;
            return Self::accept(&listener, place.n_ranks, deadline);
        }
        loop {
            let addresses = place.master.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            let connected = addresses.and_then(|all| {
                let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
                for address in all {
                    match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
                        Ok(stream) => return Ok(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            });
            match connected {
                Ok(mut stream) => {
                    let mut hello = GREETING.to_vec();
                    hello.extend((place.rank as u64).to_le_bytes());
                    hello.extend((place.n_ranks as u64).to_le_bytes());
                    stream.write_all(&hello).map_err(|error| failed("greet rank 0 at", &error))?;
                    let _ = stream.set_nodelay(true);
                    return Ok(Self::Spoke(stream));
                }
                Err(error) if Instant::now() >= deadline => {
                    return Err(failed("reach rank 0 at", &error));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn accept(listener: &TcpListener, n_ranks: usize, deadline: Instant) -> Result<Self, LibraryError> {
        let io = |error: std::io::Error| LibraryError::World(format!("accept the other ranks: {error}"));
        listener.set_nonblocking(true).map_err(io)?;
        let mut spokes: Vec<Option<TcpStream>> = (1..n_ranks).map(|_| None).collect();
        while spokes.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    let mut hello = [0u8; 36];
                    let read = stream
                        .set_nonblocking(false)
                        .and_then(|()| stream.set_read_timeout(Some(Duration::from_secs(2))))
                        .and_then(|()| stream.read_exact(&mut hello));
                    // A process that greets differently is not one of our ranks and gets no answer.
                    if read.is_err() || !hello.starts_with(GREETING) {
                        continue;
                    }
                    let word = |at: usize| {
                        hello[at..at + 8].try_into().map_or(0, |bytes| u64::from_le_bytes(bytes) as usize)
                    };
                    let (rank, size) = (word(20), word(28));
                    if size != n_ranks {
                        let why = format!("rank {rank} has world size {size}, rank 0 has {n_ranks}");
                        return Err(LibraryError::World(why));
                    }
                    let _ = stream.set_nodelay(true);
                    let _ = stream.set_read_timeout(None);
                    if let Some(slot) = rank.checked_sub(1).and_then(|n| spokes.get_mut(n)) {
                        *slot = Some(stream);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        let missing: Vec<String> = (1..n_ranks)
                            .filter(|rank| spokes[rank - 1].is_none())
                            .map(|rank| rank.to_string())
                            .collect();
                        return Err(LibraryError::World(format!(
                            "ranks {} did not connect",
                            missing.join(", ")
                        )));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(io(error)),
            }
        }
        Ok(Self::Hub(spokes.into_iter().flatten().collect()))
    }

    /// Gives what this process has, and gets what each has, in the order of processes.
    ///
    /// # Errors
    /// If another process is gone.
    pub fn exchange(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, LibraryError> {
        let gone =
            |error: std::io::Error| LibraryError::World(format!("exchange with the other ranks: {error}"));
        match self {
            Self::Alone => Ok(vec![own.to_vec()]),
            Self::Hub(spokes) => {
                let mut all = vec![own.to_vec()];
                for spoke in &mut *spokes {
                    all.push(receive(spoke).map_err(gone)?);
                }
                let mut joined = Vec::new();
                for one in &all {
                    joined.extend((one.len() as u64).to_le_bytes());
                    joined.extend(one);
                }
                for spoke in &mut *spokes {
                    send(spoke, &joined).map_err(gone)?;
                }
                Ok(all)
            }
            Self::Spoke(hub) => {
                send(hub, own).map_err(gone)?;
                let joined = receive(hub).map_err(gone)?;
                let mut all = Vec::new();
                let mut rest = &joined[..];
                while let Some((length, after)) = rest.split_first_chunk::<8>() {
                    let length = u64::from_le_bytes(*length) as usize;
                    let (one, after) = after
                        .split_at_checked(length)
                        .ok_or_else(|| gone(std::io::ErrorKind::InvalidData.into()))?;
                    all.push(one.to_vec());
                    rest = after;
                }
                Ok(all)
            }
        }
    }
}

fn send(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut message = (bytes.len() as u64).to_le_bytes().to_vec();
    message.extend(bytes);
    stream.write_all(&message)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0u8; 8];
    stream.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_MESSAGE {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    stream.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(of: &[(&str, &str)], master: Option<&str>) -> Result<Option<RankAssignment>, LibraryError> {
        let get = |name: &str| of.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        RankAssignment::from_environment(get, master)
    }

    #[test]
    fn each_launcher_is_understood() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node7"),
            ("MASTER_PORT", "29500"),
        ];
        let found = place(&torchrun, None).unwrap().unwrap();
        assert_eq!((found.rank, found.n_ranks, found.local_rank, found.launcher), (3, 8, 1, "torchrun"));
        assert_eq!(found.master, "node7:29517");
        let srun = [
            ("SLURM_PROCID", "2"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_JOB_NODELIST", "gpu[07-09,12]"),
        ];
        let found = place(&srun, None).unwrap().unwrap();
        assert_eq!((found.launcher, found.master.as_str()), ("srun", "gpu07:29517"));
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert_eq!(place(&mpi, None).unwrap().unwrap().master, "127.0.0.1:29517");
        let far = &mpi[..3];
        assert!(place(far, None).unwrap_err().to_string().contains("--master"));
        assert_eq!(place(far, Some("a:1")).unwrap().unwrap().master, "a:1");
        assert_eq!(place(far, Some("a")).unwrap().unwrap().master, "a:29517");
        assert_eq!(place(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")], None), Ok(None));
        assert_eq!(place(&[], None), Ok(None));
        assert!(place(&[("RANK", "8"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "a")], None).is_err());
    }

    #[test]
    fn what_is_exchanged_arrives_in_order_and_a_stranger_is_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let within = Duration::from_secs(20);
        let place = |rank| RankAssignment {
            rank,
            n_ranks: 3,
            local_rank: rank,
            master: format!("127.0.0.1:{port}"),
            launcher: "torchrun",
        };
        let (place, listener) = (&place, &listener);
        let talk = |mut wire: Wire, rank: u8| {
            (0..3u8).map(|round| wire.exchange(&[rank, round]).unwrap()).collect::<Vec<_>>()
        };
        let seen = std::thread::scope(|scope| {
            TcpStream::connect(("127.0.0.1", port)).unwrap().write_all(&[b'x'; 40]).unwrap();
            let spokes: Vec<_> = [2, 1]
                .map(|rank| scope.spawn(move || talk(Wire::meet(&place(rank), within).unwrap(), rank as u8)))
                .into_iter()
                .collect();
            let hub = Wire::accept(listener, 3, Instant::now() + within).unwrap();
            let mut all = vec![talk(hub, 0)];
            all.extend(spokes.into_iter().map(|spoke| spoke.join().unwrap()));
            all
        });
        let want: Vec<Vec<Vec<u8>>> =
            (0..3).map(|round| (0..3).map(|rank| vec![rank, round]).collect()).collect();
        for one in seen {
            assert_eq!(one, want);
        }
    }
}
