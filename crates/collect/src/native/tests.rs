use super::*;

#[test]
fn the_registers_of_a_thread_that_is_blocked() {
    let line = "230 0x0 0x0 0x7ffcacb497a0 0x7ffcacb497e0 0x0 0x0 0x7ffcacb49788 0x7f6b9afcd503\n";
    assert_eq!(registers(line), Some((0x7ffc_acb4_9788, 0x7f6b_9afc_d503)));
    assert_eq!(registers("-1 0x7ffcacb49788 0x7f6b9afcd503"), Some((0x7ffc_acb4_9788, 0x7f6b_9afc_d503)));
    // A thread of the kernel has none.
    for none in ["running", "-1 0x0 0x0", "", "230"] {
        assert_eq!(registers(none), None, "{none}");
    }
}
