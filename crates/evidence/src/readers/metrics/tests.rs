use crate::tell::{read, tell};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &[&str]) {
    let told = tell(&read("metrics.prom", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    assert_eq!(told, expected);
}

#[test]
fn samples_of_the_dcgm_exporter() {
    let of = |gpu: u32| {
        format!(
            "{{gpu=\"{gpu}\",UUID=\"GPU-fc51bf99-dcae-36ea-0335-328363b23d4{gpu}\",pci_bus_id=\"00000000:1{gpu}:00.0\",device=\"nvidia{gpu}\",modelName=\"NVIDIA H200\",Hostname=\"node7\""
        )
    };
    let text = format!(
        "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n\
         DCGM_FI_DEV_GPU_TEMP{a}}} 41\nDCGM_FI_DEV_GPU_TEMP{b}}} 88\n\
         DCGM_FI_DEV_XID_ERRORS{a}}} 0\nDCGM_FI_DEV_XID_ERRORS{b},err_code=\"79\",err_msg=\"GPU has fallen off the bus\"}} 79\n\
         DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{b}}} 2\nDCGM_FI_DEV_ROW_REMAP_PENDING{b}}} 1\n\
         DCGM_FI_DEV_CLOCKS_EVENT_REASONS{b}}} 64\nDCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L3{b}}} 12\n\
         DCGM_FI_DEV_POWER_USAGE{b}}} 118.5 1795162894000\nother_metric 3\n",
        a = of(0),
        b = of(1)
    );
    check(
        &text,
        &[
            "line 3: Metrics at None driver None cuda None failures []",
            "3: GPU 0 0000:10:00.0 uuid GPU-fc51bf99-dcae-36ea-0335-328363b23d40 name NVIDIA H200 C 41",
            "4: GPU 1 0000:11:00.0 uuid GPU-fc51bf99-dcae-36ea-0335-328363b23d41 name NVIDIA H200 C 88 W 118.5 errors 2 reasons 0x40 volatile [total_uncorrected: 2] rows [pending: true]",
            "1 links [3]: up None GB/s None replays Some(12) recoveries None failed None crc None []",
        ],
    );
    let extract = read("metrics.prom", text.as_bytes());
    let xid = extract.observations.iter().find_map(|o| match &o.fact {
        ringleader_model::Fact::Kernel(event) => {
            Some((event.device.map(|d| d.to_string()), o.who.host.clone(), o.cite.line))
        }
        _ => None,
    });
    assert_eq!(xid, Some((Some("0000:11:00.0".into()), Some("node7".into()), 6)));
}

#[test]
fn samples_of_the_infiniband_collector() {
    check(
        "# TYPE node_infiniband_link_downed_total counter\n\
         node_infiniband_link_downed_total{device=\"mlx5_0\",port=\"1\"} 2\n\
         node_infiniband_port_errors_received_total{device=\"mlx5_0\",port=\"1\"} 1.4e+01\n\
         node_infiniband_vl15_dropped_total{device=\"mlx5_0\",port=\"1\"} 7\n\
         node_infiniband_state_id{device=\"mlx5_0\",port=\"1\"} 1\n\
         node_infiniband_physical_state_id{device=\"mlx5_0\",port=\"1\"} 2\n\
         node_infiniband_state_id{device=\"mlx5_1\",port=\"1\"} 4\n",
        &[
            "line 2: Counters(PortCounters { device: \"mlx5_0\", port: 1, errors: [(2, \"link_downed\", 2), (3, \"port_rcv_errors\", 14)] })",
            "line 2: Port(RdmaPort { device: \"mlx5_0\", port: 1, state: (\"DOWN\"), phys_state: (\"POLLING\") })",
            "line 7: Port(RdmaPort { device: \"mlx5_1\", port: 1, state: (\"ACTIVE\") })",
        ],
    );
}

#[test]
fn what_only_looks_alike_is_left() {
    for line in [
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"",
        "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} NaN",
        "dcgm_fi 3",
    ] {
        check(line, &[]);
    }
}
