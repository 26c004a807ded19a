//! Access Control Services of a bridge, read from configuration space.
//!
//! Source: PCI Express base specification, extended capability 0x000d; pciutils lib/header.h.

/// Id of the capability.
const ACS: u16 = 0x000d;
/// Extended capabilities follow the first 256 bytes.
const FIRST: usize = 0x100;
/// Capabilities that fit; a chain that is longer runs in a circle.
const MAX_CAPABILITIES: usize = (4096 - FIRST) / 8;
/// Bits of the control register, with the names that lspci gives them.
const CONTROLS: [&str; 7] =
    ["SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"];

/// Control bits that are on; None if there is no such capability, or what was read ends before it (without root the
/// kernel gives 64 bytes).
pub(super) fn controls(config: &[u8]) -> Option<Vec<String>> {
    let mut at = FIRST;
    for _ in 0..MAX_CAPABILITIES {
        let header = u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?);
        if header == 0 || header == u32::MAX {
            return None;
        }
        if header as u16 == ACS {
            let control = u16::from_le_bytes(config.get(at + 6..at + 8)?.try_into().ok()?);
            let is_on = |bit: &usize| control & 1 << bit != 0;
            return Some((0..CONTROLS.len()).filter(is_on).map(|bit| CONTROLS[bit].to_owned()).collect());
        }
        at = (header >> 20) as usize & !3;
        if at < FIRST {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(chain: &[(usize, u16, usize, u16)]) -> Vec<u8> {
        let mut config = vec![0; 4096];
        for (at, id, next, control) in chain {
            let header = u32::from(*id) | 1 << 16 | (*next as u32) << 20;
            config[*at..at + 4].copy_from_slice(&header.to_le_bytes());
            config[at + 6..at + 8].copy_from_slice(&control.to_le_bytes());
        }
        config
    }

    #[test]
    fn the_bits_behind_another_capability() {
        let bridge = config(&[(0x100, 0x0001, 0x148, 0), (0x148, ACS, 0, 0x1d)]);
        let on = ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"].map(str::to_owned);
        assert_eq!(controls(&bridge), Some(on.to_vec()));
        assert_eq!(controls(&config(&[(0x100, ACS, 0, 0)])), Some(Vec::new()));
    }

    #[test]
    fn none_is_not_off() {
        assert_eq!(controls(&config(&[(0x100, 0x0001, 0, 0)])), None);
        assert_eq!(controls(&[0; 64]), None);
        // A chain that bites its tail.
        assert_eq!(controls(&config(&[(0x100, 1, 0x148, 0), (0x148, 2, 0x100, 0)])), None);
        assert_eq!(controls(&vec![0xff; 4096]), None);
    }
}
