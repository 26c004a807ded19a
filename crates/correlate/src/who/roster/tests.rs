//! Members joined from whatever names two of their names together.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use ringleader_model::{
    Environment, EnvironmentForm, GroupRank, NcclLog, NcclProcess, ProcessStacks, RasComm, RasPeer, RasRank,
    RasReport, RingRecord, SourceKind,
};

use super::claims::address_of;
use super::*;
use crate::staging::StagedCase;

#[test]
fn address_is_taken_from_the_bootstrap_line() {
    let of = |bootstrap: &str| {
        let process = NcclProcess { bootstrap: Some(bootstrap.into()), ..NcclProcess::default() };
        process.meets_at().and_then(address_of).map(str::to_owned)
    };
    assert_eq!(of("eth0:192.0.2.2<0>").as_deref(), Some("192.0.2.2"));
    assert_eq!(of("ib0:[fe80::1]<0>").as_deref(), Some("fe80::1"));
    assert_eq!(of("eth0"), None);
}

#[test]
fn a_pid_on_two_hosts_means_nobody() {
    let member = |host: &str, rank| Member {
        rank: Some(Rank(rank)),
        host: Some(host.into()),
        pid: Some(Pid(7)),
        ..Member::default()
    };
    let mut roster = Roster { members: vec![member("a", 0), member("b", 1)], ..Roster::default() };
    roster.index();
    let who = |host: Option<&str>| Who { pid: Some(Pid(7)), host: host.map(Host::from), ..Who::default() };
    assert_eq!(roster.find(&who(None)), None);
    assert_eq!(roster.find(&who(Some("b"))).and_then(|m| m.rank), Some(Rank(1)));
}

#[test]
fn a_host_whose_name_begins_like_a_members_is_another() {
    let member =
        Member { rank: Some(Rank(0)), host: Some("node1.cluster.example".into()), ..Member::default() };
    let roster = Roster { members: vec![member], world_size: Some(1), ..Roster::default() };
    for (host, expected) in
        [("node1", false), ("node1.cluster.example", false), ("node10", true), ("node", true)]
    {
        assert_eq!(roster.is_elsewhere(&host.into()), expected, "{host}");
    }
}

#[test]
fn a_child_that_outlives_its_rank_is_not_the_rank() {
    use ringleader_model::SourceKind;
    let who = |pid: u32| Who { pid: Some(Pid(pid)), ..Who::rank(1) };
    let watched = |job: StagedCase| {
        job.push(SourceKind::Watch, Who::default(), Fact::Watch(WatchEvent::Ranks(vec![who(101), who(777)])))
    };
    let of_rank_1 = |job: StagedCase| {
        let members = Roster::new(&job.case).members;
        members.iter().filter(|m| m.rank == Some(Rank(1))).filter_map(|m| m.pid).collect::<Vec<_>>()
    };
    // The ring of rank 1 is that of process 101.
    assert_eq!(of_rank_1(watched(StagedCase::job(2).rings(&["ar:9?", "ar:9"]))), [Pid(101)]);
    assert_eq!(of_rank_1(watched(StagedCase::job(2)).rings(&["ar:9?", "ar:9"])), [Pid(101)]);
    // Nobody has spoken yet.
    assert_eq!(of_rank_1(watched(StagedCase::job(2))), [Pid(101), Pid(777)]);
}

#[test]
fn of_several_attempts_the_last_is_the_rank() {
    use ringleader_model::SourceKind;
    // Rank 1 was process 101, whose ring is left, and is another now, with a smaller number.
    let attempts = |began: u64, is_live: bool| {
        let mut job = StagedCase::job(2).rings(&["ar:9?", "ar:9"]);
        let second = job.case.observations.iter().find(|o| o.who.pid == Some(Pid(101))).cloned();
        let mut second = second.filter(|o| matches!(o.fact, Fact::Ring(_))).unwrap();
        second.who.pid = Some(Pid(55));
        for (observation, (began, is_live)) in
            job.case.observations.iter_mut().zip(std::iter::repeat((1_000, false)))
        {
            if let Fact::Ring(ring) = &mut observation.fact {
                (ring.start_ticks, ring.is_live) = (began, is_live);
            }
        }
        if let Fact::Ring(ring) = &mut second.fact {
            (ring.start_ticks, ring.is_live) = (began, is_live);
        }
        job.case.observations.push(second);
        job
    };
    let of_rank_1 = |job: &StagedCase| {
        let roster = Roster::new(&job.case);
        assert_eq!(roster.rank_of(Pid(101), None), Some(Rank(1)), "what it said is still its word");
        roster.culprit_rank(Rank(1)).pid
    };
    assert_eq!(of_rank_1(&attempts(2_000, true)), Some(Pid(55)));
    assert_eq!(of_rank_1(&attempts(2_000, false)), Some(Pid(55)));
    // It is the older one.
    assert_eq!(of_rank_1(&attempts(500, false)), Some(Pid(101)));
    // The watcher names the newest alone, which has no ring yet.
    let who = Who { pid: Some(Pid(777)), host: Some("node1".into()), ..Who::rank(1) };
    let watched = attempts(2_000, false).push(
        SourceKind::Watch,
        Who::default(),
        Fact::Watch(WatchEvent::Ranks(vec![who])),
    );
    assert_eq!(of_rank_1(&watched), Some(Pid(777)));
}

#[test]
fn a_process_with_several_gpus_is_several_ranks() {
    let mut job = StagedCase::job(2).rings(&["ar:9?"]);
    for observation in &mut job.case.observations {
        if let Fact::Ring(ring) = &mut observation.fact {
            observation.who.rank = None;
            let second = ringleader_model::RingComm { rank: Some(1), ..ring.comms.remove(0) };
            ring.comms = vec![ringleader_model::RingComm { rank: Some(0), ..second.clone() }, second];
        }
    }
    let roster = Roster::new(&job.case);
    assert_eq!([0, 1].map(|rank| roster.culprit_rank(Rank(rank)).pid), [Some(Pid(100)); 2]);
    assert_eq!(roster.rank_of(Pid(100), None), None);
}

#[test]
fn who_spoke_need_not_be_all() {
    let listed = |job: StagedCase| job.listing(Some(1), &[("RANK", "1")]);
    let spoke = StagedCase::new().error_line(Some(0), "ValueError: boom");
    assert_eq!(Roster::new(&listed(spoke).case).world_size, Some(2));
    assert_eq!(Roster::new(&listed(StagedCase::new()).case).world_size, None);
}

#[test]
fn a_rank_that_spoke_before_its_process_was_known() {
    let spoke = |job: StagedCase| job.error_line(Some(1), "ValueError: boom");
    let logged = |job: StagedCase| job.process("node1", 101, None);
    let seen = |job: StagedCase| job.rings(&["ar:9", "ar:9"]);
    let first = Roster::new(&seen(logged(spoke(StagedCase::job(2)))).case);
    let last = Roster::new(&spoke(logged(seen(StagedCase::job(2)))).case);
    assert_eq!(first.members, last.members);
    assert_eq!(first.members.len(), 2);
    assert_eq!(first.by_rank(Rank(1)).and_then(|m| m.pid), Some(Pid(101)));
}

#[test]
fn children_inherit_the_rank() {
    let started = |job: StagedCase, rank, pid| {
        let settings = Vec::new();
        let environment =
            Environment { form: EnvironmentForm::Process, settings, n_left_out: 0, is_whole: true };
        let who =
            Who { rank: Some(Rank(rank)), host: Some("node1".into()), pid: Some(Pid(pid)), ..Who::default() };
        job.push(SourceKind::Environment, who, Fact::Environment(Box::new(environment)))
    };
    let of = |job: StagedCase| Roster::new(&job.case).rank_of(Pid(555), None);
    let rings = || StagedCase::job(2).rings(&["ar:9", "ar:9"]);
    // The rank itself is gone; its worker lives.
    assert_eq!(of(started(started(rings(), 0, 100), 1, 555)), None);
    // Rings of an attempt that is over; no rings at all.
    assert_eq!(of(started(rings(), 1, 555)), Some(Rank(1)));
    assert_eq!(of(started(started(StagedCase::job(2), 0, 100), 1, 555)), Some(Rank(1)));
}

#[test]
fn the_order_of_files_decides_nothing() {
    let job = StagedCase::job(3)
        .process("node0", 100, Some(0))
        .comm(0, 3, 0x1a, true)
        .process("node0", 101, None)
        .comm(1, 3, 0x3b, true)
        .failed(2, -9, true)
        .raised(Some(1), "KeyError", "'x'", &[])
        .raised(Some(2), "KeyError", "'y'", &[])
        .listing(Some(2), &[("RANK", "2")]);
    let forward = Roster::new(&job.case);
    let mut case = job.case;
    case.observations.reverse();
    let backward = Roster::new(&case);
    assert_eq!(forward.members, backward.members);
    assert!(forward.members.len() >= 3, "{:#?}", forward.members);
    case.observations.rotate_left(2);
    assert_eq!(forward.members, Roster::new(&case).members);
}

/// What one source of a made-up job says, of few ranks, processes and hosts: claims meet, and contradict each other.
fn claim() -> impl Strategy<Value = (u8, Who)> {
    let host = prop::option::of(prop::sample::select(vec!["node0", "node1", "localhost"]));
    let numbers = (prop::option::of(0..5_u32), prop::option::of(0..3_u32), prop::option::of(100..105_u32));
    (0..11_u8, numbers, host).prop_map(|(kind, (rank, local_rank, pid), host)| {
        let who = Who {
            rank: rank.map(Rank),
            local_rank: local_rank.map(LocalRank),
            pid: pid.map(Pid),
            host: host.map(Host::from),
        };
        (kind, who)
    })
}

fn says(job: StagedCase, kind: u8, who: Who) -> StagedCase {
    let torch = |event| (SourceKind::TorchLog, Fact::Torch(event));
    let (kind, fact) = match kind {
        0 | 1 => {
            let process = NcclProcess { who: who.clone(), ..NcclProcess::default() };
            let log = NcclLog { processes: vec![process], ..NcclLog::default() };
            (SourceKind::NcclLog, Fact::Nccl(Box::new(log)))
        }
        2 => {
            let start_ticks = who.pid.map_or(0, |pid| u64::from(pid.0));
            let is_live = start_ticks.is_multiple_of(2);
            let ring = RingRecord { world_size: Some(4), start_ticks, is_live, ..RingRecord::default() };
            (SourceKind::Ring, Fact::Ring(Box::new(ring)))
        }
        3 => {
            let rank = who.rank.map(|rank| GroupRank(rank.0));
            let peer = RasPeer { rank, host: who.host.clone(), pid: who.pid, ..RasPeer::default() };
            let comm = RasComm {
                size: 4,
                ranks: vec![RasRank { peer, ..RasRank::default() }],
                ..RasComm::default()
            };
            (SourceKind::Ras, Fact::Ras(Box::new(RasReport { comms: vec![comm], ..RasReport::default() })))
        }
        4 => torch(TorchEvent::ChildFailure {
            is_root: false,
            exit_code: 1,
            time: None,
            host: None,
            message: None,
        }),
        5 => torch(TorchEvent::ChildExit { exit_code: 1, is_first: false }),
        6 => torch(TorchEvent::Started),
        7 => {
            let environment = Environment {
                form: EnvironmentForm::Process,
                settings: vec![],
                n_left_out: 0,
                is_whole: true,
            };
            (SourceKind::Environment, Fact::Environment(Box::new(environment)))
        }
        8 => (SourceKind::Watch, Fact::Watch(WatchEvent::Ranks(vec![who.clone()]))),
        9 => {
            let stacks = ProcessStacks { pid: who.pid, ..ProcessStacks::default() };
            (SourceKind::Stacks, Fact::Stacks(Box::new(stacks)))
        }
        _ => return job.says(who, "error: no space left on device"),
    };
    job.push(kind, who, fact)
}

fn roster(claims: &[(u8, Who)]) -> Roster {
    let of = |job, (kind, who): &(u8, Who)| says(job, *kind, who.clone());
    Roster::new(&claims.iter().fold(StagedCase::new(), of).case)
}

proptest! {
    #[test]
    fn the_order_of_claims_decides_nothing(
        (claims, others) in prop::collection::vec(claim(), 1..16)
            .prop_flat_map(|claims| (Just(claims.clone()), Just(claims).prop_shuffle()))
    ) {
        prop_assert_eq!(roster(&claims).members, roster(&others).members);
    }

    #[test]
    fn a_rank_that_was_heard_of_is_the_process_that_has_it(claims in prop::collection::vec(claim(), 1..16)) {
        let members = roster(&claims).members;
        for heard in members.iter().filter(|m| m.pid.is_none()) {
            let is_it = |m: &&Member| m.pid.is_some() && m.rank == heard.rank && m.host == heard.host;
            prop_assert!(!members.iter().any(|m| is_it(&m) && m.address == heard.address), "{:#?}", members);
        }
    }
}
