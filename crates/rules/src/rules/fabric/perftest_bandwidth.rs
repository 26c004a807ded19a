//! # What it shows
//!
//! perftest (ib_write_bw and its siblings) measured far less than the rate of the port it ran over.
//!
//! # Why it happens
//!
//! A slot with too few lanes or of an older generation, a cable with errors, a congested or badly routed path, flow
//! control that is off, a processor that saves power.
//!
//! # Evidence
//!
//! The best average of messages of 64 KiB and more, against the rate that ibstat and its like show for that port.
//!
//! # What looks like it but is not
//!
//! Small messages measure latency. A port of an unknown rate, or of a name that several hosts have with different
//! rates, shows nothing. A 100 Gb/s port in an old slot is limited by the slot.
//!
//! # What to do
//!
//! Run it between other pairs to see which end is slow, then look at that end's slot, cable and counters.
//!
//! # References
//!
//! linux-rdma/perftest README; ibstat(8).

use ringleader_model::{
    Cause, Confidence, Host, Impact, NetFact, Perftest, Severity, SourceKind, plain_word,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::shown;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "perftest-bandwidth",
    title: "an RDMA path is slower than its port",
    since: "0.1",
    doc: include_str!("perftest_bandwidth.rs"),
    check,
};

/// Messages of this size and more are limited by bandwidth.
const LARGE_BYTES: u64 = 64 << 10;
/// Share of the port's rate below which something is wrong: healthy paths reach 90 % and more.
const SHARE: f64 = 0.6;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings = Vec::new();
    for (observation, fact) in scene.net() {
        let NetFact::Perftest(test) = fact else { continue };
        let (Some(device), Some((line, bytes, gbps))) = (test.device.as_deref(), best(test)) else {
            continue;
        };
        let host = scene.host_of(observation);
        let Some((rate, of_port)) = rate(scene, host.as_ref(), device) else { continue };
        if gbps >= SHARE * rate {
            continue;
        }
        let at = host.as_ref().map_or_else(String::new, |h| format!(" of {h}"));
        let users = scene.verbs_users(host.as_ref(), device, 1);
        let is_used = host.is_some() && !users.is_empty();
        let name = if test.test.is_empty() { "perftest" } else { &test.test };
        let title = format!("{device}{at}: {gbps:.0} Gb/s in {name}, and its port runs at {rate:.0} Gb/s");
        findings.extend(
            Draft::new(RULE.id, Cause::SlowLink, title)
                .severity(Severity::Warning)
                .confidence(if is_used { Confidence::Medium } else { Confidence::Low })
                // Which of the two ends is slow one test does not tell.
                .at_most(Confidence::Medium)
                .culprits(if is_used { scene.culprits_of(users.iter().map(|u| u.process)) } else { Vec::new() })
                .evidence([shown(
                    observation,
                    Some(line),
                    SourceKind::Network,
                    format!("{device}: {gbps:.1} Gb/s on average with {bytes} bytes"),
                )])
                .evidence([of_port])
                .advise_made(
                    Impact::Harmless,
                    "test each end against a third host: the slow end is slow with every host",
                    plain_word(device).map(|device| format!("ib_write_bw -d {device} -F --report_gbits <host>")),
                )
                .advise_made(
                    Impact::Harmless,
                    "then look at the slot and the cable of that end",
                    plain_word(device).map(|device| format!("lspci -vvv -s $(basename $(readlink /sys/class/infiniband/{device}/device)) | grep LnkSta; mlxlink -d {device} -m -c")),
                )
                .build(),
        );
    }
    Outcome::from_findings(findings)
}

/// The best average of large messages: line, bytes, Gb/s.
fn best(test: &Perftest) -> Option<(u32, u64, f64)> {
    let large = test.rows.iter().filter(|(_, bytes, gbps)| *bytes >= LARGE_BYTES && *gbps > 0.0);
    large.copied().max_by(|a, b| a.2.total_cmp(&b.2))
}

/// Rates that tools print of one port differ by rounding alone.
const SAME_RATE_GBPS: f64 = 1.0;

/// The rate of a port, if all sightings of it agree.
fn rate(scene: &Scene<'_>, host: Option<&Host>, device: &str) -> Option<(f64, ringleader_model::Evidence)> {
    let mut found: Option<(f64, ringleader_model::Evidence)> = None;
    for (observation, fact) in scene.net() {
        let NetFact::Port(port) = fact else { continue };
        let Some(rate) = port.rate_gbps.filter(|r| *r > 0.0 && &*port.device == device) else { continue };
        if !scene.may_be_on(scene.host_of(observation).as_ref(), host) || port.is_up() == Some(false) {
            continue;
        }
        match &found {
            Some((known, _)) if (known - rate).abs() > SAME_RATE_GBPS => return None,
            Some(_) => {}
            None => {
                let text = format!("{device} runs at {rate} Gb/s");
                found = Some((rate, shown(observation, None, SourceKind::Network, text)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use ringleader_model::{NetFact, Perftest};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    fn measured(bytes: u64, gbps: f64) -> NetFact {
        NetFact::Perftest(Perftest {
            test: "RDMA_Write BW Test".into(),
            device: Some("mlx5_0".into()),
            rows: vec![(9, 2, 0.1), (10, bytes, gbps)],
            failure: None,
        })
    }

    fn nodes() -> StagedCase {
        StagedCase::new().two_verbs_nodes().port("node0", "mlx5_0", ("ACTIVE", "LINKUP"), 400.0)
    }

    #[test]
    fn far_below_the_port() {
        nodes().net("node0", measured(65_536, 97.0)).concludes(&RULE, "slow-link 0, medium");
    }

    #[test]
    fn what_is_healthy_small_or_of_another_port() {
        nodes().net("node0", measured(65_536, 377.0)).silent(&RULE);
        nodes().net("node0", measured(512, 12.0)).silent(&RULE);
        nodes().net("node1", measured(65_536, 97.0)).silent(&RULE);
        // Two ports of that name with two rates, and no host's name above the test.
        let two = nodes().port("node1", "mlx5_0", ("ACTIVE", "LINKUP"), 100.0);
        two.net("", measured(65_536, 97.0)).silent(&RULE);
    }
}
