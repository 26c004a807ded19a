//! Linux drivers of network cards.

/// What the driver of a card is good for.
struct Nic {
    name: &'static str,
    /// Its Ethernet cards speak verbs (RoCE).
    has_verbs: bool,
    /// Its messages on trouble of a card are known.
    is_read: bool,
}

const fn nic(name: &'static str, has_verbs: bool, is_read: bool) -> Nic {
    Nic { name, has_verbs, is_read }
}

const NICS: [Nic; 12] = [
    nic("mlx5_core", true, true),
    nic("mlx4_core", true, true),
    nic("bnxt_en", true, true),
    nic("irdma", true, true),
    nic("ice", true, true),
    nic("qede", true, false),
    nic("efa", false, true),
    nic("ena", false, true),
    nic("i40e", false, true),
    nic("ixgbe", false, false),
    nic("igb", false, false),
    nic("hns3", false, false),
];

fn of(name: &str) -> Option<&'static Nic> {
    NICS.iter().find(|nic| nic.name == name)
}

/// Whether it drives a network card.
pub fn is_nic(name: &str) -> bool {
    of(name).is_some()
}

/// Whether the Ethernet cards that it drives speak verbs.
pub fn has_verbs(name: &str) -> bool {
    of(name).is_some_and(|nic| nic.has_verbs)
}

/// Whether the table of its messages tells trouble of a card from others.
pub fn tells_trouble(name: &str) -> bool {
    of(name).is_some_and(|nic| nic.is_read)
}

#[cfg(test)]
mod tests {
    use super::{has_verbs, is_nic, tells_trouble};

    #[test]
    fn drivers_of_cards() {
        assert!(is_nic("mlx5_core") && has_verbs("mlx5_core") && tells_trouble("mlx5_core"));
        assert!(is_nic("efa") && !has_verbs("efa"));
        assert!(!is_nic("nvme") && !is_nic("") && !has_verbs("device"));
    }
}
