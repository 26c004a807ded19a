//! A real etcd on loopback, and a connection to it that can be cut.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::wait;

/// An etcd with its own data folder.
pub(crate) struct Server {
    folder: tempfile::TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
}

/// A port below those that the kernel assigns: a client that retries while nobody listens might be assigned
/// the server's own port, connect to itself, and prevent the server from returning.
fn free_port() -> SocketAddr {
    // Each port is used once: it is free again as soon as the listener below is gone.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).into());
        let port = 11_000 + (offset % 20_000) as u16;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener.local_addr().unwrap();
        }
    }
}

impl Server {
    /// None, with a message, if etcd is not installed.
    pub(crate) fn start() -> Option<Self> {
        if !is_etcd_here() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { folder, client: free_port(), peer: free_port(), child: None };
        server.resume();
        Some(server)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.client
    }

    /// Starts it with its existing data.
    pub(crate) fn resume(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let log =
            std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = Command::new("etcd")
            .args(["--name", "test", "--logger", "zap"])
            .arg("--data-dir")
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("test={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let client = self.client;
        wait("etcd", || TcpStream::connect_timeout(&client, Duration::from_secs(1)).is_ok());
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// Deletes its data.
    pub(crate) fn wipe(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether etcd is installed; prints a message if not.
pub(crate) fn is_etcd_here() -> bool {
    let version = Command::new("etcd").arg("--version").output();
    let is_here = version.is_ok_and(|output| output.status.success());
    if !is_here {
        not_tested("etcd is not installed (Debian: etcd-server)");
    }
    is_here
}

pub(crate) fn not_tested(why: &str) {
    println!("not tested: {why}");
}

const OPEN: u8 = 0;
const CUT: u8 = 1;
const SILENT: u8 = 2;

/// Forwards connections to a server until it is cut, which both ends notice, or silent, which neither does.
pub(crate) struct Wire {
    address: SocketAddr,
    state: Arc<AtomicU8>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Wire {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(AtomicU8::new(OPEN));
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let (of_wire, all) = (state.clone(), streams.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let Ok(near) = near else { return };
                if of_wire.load(Ordering::SeqCst) == CUT {
                    continue;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                    all.lock().unwrap().push(stream.try_clone().unwrap());
                }
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (from, to, state) = (from.unwrap(), to.unwrap(), of_wire.clone());
                    std::thread::spawn(move || forward(from, to, &state));
                }
            }
        });
        Self { address, state, streams }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cut(&self) {
        self.state.store(CUT, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// Drops all bytes without an error at either end.
    pub(crate) fn silence(&self) {
        self.state.store(SILENT, Ordering::SeqCst);
    }

    /// Lets connections through again; those that lost bytes are cut.
    pub(crate) fn mend(&self) {
        self.cut();
        self.state.store(OPEN, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, state: &AtomicU8) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n) = from.read(&mut bytes) {
        if n == 0 {
            break;
        }
        if state.load(Ordering::SeqCst) == OPEN && to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
    from.shutdown(Shutdown::Both).ok();
}
