use ringleader_watch::digest::from_ring;
#[test]
fn probe() {
    for path in std::env::var("PROBE").unwrap_or_default().split_whitespace() {
        let state = ringleader_ring::Reader::open(path.as_ref()).unwrap().state().unwrap();
        for comm in from_ring(&state).comms {
            eprintln!("{path} {} {} {:?} coll {} done {:?} period {:?}", comm.id, comm.size, comm.rank, comm.collectives, comm.collectives_done, comm.period);
        }
    }
}
