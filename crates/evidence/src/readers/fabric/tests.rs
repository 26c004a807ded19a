use crate::tell::{read, tell};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("net", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected, "\n{}", told.join("\n"));
}

const IBSTAT: &str = "\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.36.1010
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 17
\t\tSM lid: 1
\t\tLink layer: InfiniBand
CA 'mlx5_3'
\tCA type: MT4129
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 10
\t\tBase lid: 65535
\t\tLink layer: InfiniBand
";

#[test]
fn ports_of_ibstat() {
    check(
        IBSTAT,
        r#"
        line 5: Port(RdmaPort { device: "mlx5_0", port: 1, state: ("ACTIVE"), phys_state: ("LINKUP"), rate_gbps: (400.0), link_layer: ("InfiniBand"), lid: (17) })
        line 14: Port(RdmaPort { device: "mlx5_3", port: 1, state: ("DOWN"), phys_state: ("POLLING"), rate_gbps: (10.0), link_layer: ("InfiniBand"), lid: (65535) })
        "#,
    );
}

#[test]
fn ports_of_other_tools() {
    check(
        "\
Infiniband device 'mlx5_1' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:506b:4b03:0049:4236
\tbase lid:\t 0x6
\tsm lid:\t\t 0x1
\tstate:\t\t 2: INIT
\tphys state:\t 5: LinkUp
\trate:\t\t 200 Gb/sec (4X HDR)
\tlink_layer:\t InfiniBand

hca_id:\tmlx5_2
\ttransport:\t\t\tInfiniBand (0)
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tport_lid:\t\t0
\t\t\tlink_layer:\t\tEthernet
link mlx5_4/1 state DOWN physical_state DISABLED netdev ens5
/sys/class/infiniband/mlx5_5/ports/1/state:4: ACTIVE
root@node3:~# mlxlink -d mlx5_6 -c
Operational Info
----------------
State                              : Polling
Physical state                     : ETH_AN_FSM_ENABLE
Speed                              : IB-HDR
Width                              : 4x
Symbol Errors                      : 12
",
        r#"
        line 1: Port(RdmaPort { device: "mlx5_1", port: 1, state: ("INIT"), phys_state: ("LINKUP"), rate_gbps: (200.0), lanes: (4), link_layer: ("InfiniBand"), lid: (6) })
        line 12: Port(RdmaPort { device: "mlx5_2", port: 1, state: ("ACTIVE"), link_layer: ("Ethernet"), active_mtu: (1024), max_mtu: (4096), lid: (0) })
        line 18: Port(RdmaPort { device: "mlx5_4", port: 1, state: ("DOWN"), phys_state: ("DISABLED"), netdev: ("ens5") })
        line 19: Port(RdmaPort { device: "mlx5_5", port: 1, state: ("ACTIVE") })
        line 21: Counters(PortCounters { device: "mlx5_6", port: 1, errors: [(27, "Symbol Errors", 12)] })
        line 21: Port(RdmaPort { device: "mlx5_6", port: 1, state: ("POLLING"), phys_state: ("ETHANFSMENABLE"), rate_gbps: (200.0), lanes: (4) })
        "#,
    );
}

#[test]
fn counters() {
    check(
        "\
$ perfquery -x -C mlx5_0
# Port extended counters: Lid 17 port 1 (CapMask: 0x5A00 CapMask2: 0x0000000)
PortSelect:......................1
CounterSelect:...................0x0000
PortXmitData:....................9049592493976
SymbolErrorCounter:..............3
LinkDownedCounter:...............1
PortRcvSwitchRelayErrors:........9
PortXmitWait:....................22730501
/sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error:0
/sys/class/infiniband/mlx5_1/ports/1/hw_counters/local_ack_timeout_err:7
$ ethtool -S eth2
NIC statistics:
     rx_packets: 12
     tx_bytes_phy: 99
     rx_discards_phy: 4
     link_down_events_phy: 2
",
        r#"
        line 2: Counters(PortCounters { device: "mlx5_0", port: 1, lid: (17), errors: [(6, "SymbolErrorCounter", 3), (7, "LinkDownedCounter", 1)], moved: (9049592493976) })
        line 10: Counters(PortCounters { device: "mlx5_1", port: 1, errors: [(10, "symbol_error", 0), (11, "local_ack_timeout_err", 7)] })
        line 13: Counters(PortCounters { device: "eth2", port: 0, errors: [(16, "rx_discards_phy", 4), (17, "link_down_events_phy", 2)], moved: (99) })
        "#,
    );
}

#[test]
fn interfaces_and_routes() {
    check(
        "\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
4: eth0@if7: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1400 qdisc pfifo_fast state DOWN group default qlen 1000
    link/ether 02:fc:00:00:00:01 brd ff:ff:ff:ff:ff:ff
    inet 192.0.2.2/24 brd 192.0.2.255 scope global eth0
lo               UNKNOWN        127.0.0.1/8 ::1/128 
ifb0             DOWN           
eth0             UP             192.0.2.2/24 fd00::2/64 fe80::fc:ff:fe00:1/64 
default via 192.0.2.1 dev eth0 
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.2 linkdown
unreachable 198.51.100.0/24 
Settings for ens5:
\tSupported ports: [ FIBRE ]
\tSpeed: 25000Mb/s
\tLink detected: no
everybody UP to go
",
        r#"
        line 1: Interface(Interface { name: "lo", state: ("UNKNOWN"), flags: "LOOPBACK,UP,LOWER_UP", mtu: (65536), addresses: ["127.0.0.1"], networks: ["127.0.0.0/8"] })
        line 5: Interface(Interface { name: "eth0", state: ("DOWN"), flags: "NO-CARRIER,BROADCAST,MULTICAST,UP", mtu: (1400), addresses: ["192.0.2.2"], networks: ["192.0.2.0/24"] })
        line 8: Interface(Interface { name: "lo", state: ("UNKNOWN"), addresses: ["127.0.0.1", "::1"], networks: ["127.0.0.0/8"] })
        line 9: Interface(Interface { name: "ifb0", state: ("DOWN") })
        line 10: Interface(Interface { name: "eth0", state: ("UP"), addresses: ["192.0.2.2", "fd00::2", "fe80::fc:ff:fe00:1"], networks: ["192.0.2.0/24"] })
        line 11: Route(Route { to: "default", via: ("192.0.2.1"), device: ("eth0") })
        line 12: Route(Route { to: "192.0.2.0/24", device: ("eth0"), is_dead: true })
        line 13: Route(Route { to: "198.51.100.0/24", is_dead: true })
        line 14: Interface(Interface { name: "ens5", speed_mbps: (25000), link_detected: (false) })
        "#,
    );
}

#[test]
fn paths_and_listeners() {
    check(
        "\
Connection to 192.0.2.3 29500 port [tcp/*] succeeded!
nc: connect to 192.0.2.3 port 29500 (tcp) failed: Connection refused
(UNKNOWN) [192.0.2.3] 29501 (?) : Connection timed out
$ nc -zv node7 29500
Ncat: TIMEOUT.
bash: line 1: /dev/tcp/192.0.2.3/29500: No route to host
ping: node9: Name or service not known
PING node1 (192.0.2.3) 8972(9000) bytes of data.
ping: local error: message too long, mtu=1500
--- node1 ping statistics ---
3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 2040ms
LISTEN 0      128          0.0.0.0:2024      0.0.0.0:*          
tcp   LISTEN 0      4096   *:29500   *:*
tcp        0      0 127.0.0.1:631           0.0.0.0:*               LISTEN
-E- lid=0x0011 dev=41686 node3/U1/P1: port counter symbol_error_counter increased by 12
$ ib_write_bw -d mlx5_0 192.0.2.3
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      5000             11234.25           11198.78              0.170497
",
        r#"
        line 1: Reach(Reach { tool: "nc", host: "192.0.2.3", port: (29500), outcome: Answers })
        line 2: Reach(Reach { tool: "nc", host: "192.0.2.3", port: (29500), outcome: Refused })
        line 3: Reach(Reach { tool: "nc", host: "192.0.2.3", port: (29501), outcome: TimedOut })
        line 5: Reach(Reach { tool: "nc", host: "node7", port: (29500), outcome: TimedOut })
        line 6: Reach(Reach { tool: "bash", host: "192.0.2.3", port: (29500), outcome: NoRoute })
        line 7: Reach(Reach { tool: "ping", host: "node9", outcome: UnknownHost })
        line 8: Reach(Reach { tool: "ping", host: "node1", outcome: TimedOut, payload_bytes: (8972), too_large_for: (1500) })
        line 12: Listener { local: "0.0.0.0:2024" }
        line 13: Listener { local: "*:29500" }
        line 14: Listener { local: "127.0.0.1:631" }
        line 15: Fabric { is_error: true, nodes: ["node3", "U1"], text: "lid=0x0011 dev=41686 node3/U1/P1: port counter symbol_error_counter increased by 12" }
        line 17: Perftest(Perftest { test: "RDMA_Write BW Test", device: ("mlx5_0"), rows: [(20, 65536, 93.94217549824)] })
        "#,
    );
}

#[test]
fn gids_and_their_versions() {
    check(
        "\
DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV
---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---
mlx5_0\t1\t0\tfe80:0000:0000:0000:063f:72ff:fefb:8d7c\t\t\tv1\teth2
mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:c000:0202\t192.0.2.2  \tv2\teth2
n_gids_found=2
",
        r#"
        line 3: Gid(GidEntry { device: "mlx5_0", port: 1, index: 0, gid: "fe80:0000:0000:0000:063f:72ff:fefb:8d7c", netdev: "eth2" })
        line 4: Gid(GidEntry { device: "mlx5_0", port: 1, index: 3, gid: "0000:0000:0000:0000:0000:ffff:c000:0202", ipv4: ("192.0.2.2"), is_v2: true, netdev: "eth2" })
        "#,
    );
}

#[test]
fn lines_of_programs_are_left() {
    check(
        "\
epoch 1: loss 0.2
Port 1: closed for lunch
default values are used
link the libraries
From here on nothing happens
Settings for the run
192.0.2.2 joined
Connection to the store lost
State: Down
tcp is used
step 12: 14 samples
",
        "",
    );
}

mod laws {
    use proptest::prelude::*;

    use super::IBSTAT;
    use crate::tell::{read, tell};

    #[test]
    fn what_a_cut_file_says_the_whole_says_too() {
        let whole = tell(&read("net", IBSTAT.as_bytes()));
        for cut in 0..IBSTAT.len() {
            let part = read("net", IBSTAT.get(..cut).unwrap_or_default().as_bytes());
            for o in &part.observations {
                let ringleader_model::Fact::Net(net) = &o.fact else { continue };
                let ringleader_model::NetFact::Port(port) = &**net else { continue };
                let name = format!("{:?}", port.device);
                assert!(whole.contains(&name), "cut at {cut}: {name}");
                let state = port.state.as_deref().unwrap_or("ACTIVE");
                assert!(matches!(state, "ACTIVE" | "DOWN"), "cut at {cut}: {state}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_lines_are_read_without_a_panic(
            lines in prop::collection::vec(
                (prop::sample::select(super::STARTS.to_vec()), "[ -~\\t]{0,60}"), 0..30)
        ) {
            let text: String = lines.iter().flat_map(|(start, rest)| [start.to_string(), rest.clone(), "\n".to_owned()]).collect();
            let extract = read("net", text.as_bytes());
            prop_assert!(extract.observations.len() <= 3 * lines.len());
        }
    }
}

/// Beginnings that open something.
const STARTS: [&str; 29] = [
    "CA '",
    "\tPort 1:",
    "\t\tState: ",
    "\t\tRate: ",
    "hca_id:\t",
    "\t\tport:\t1",
    "link mlx5_0/",
    "Operational Info",
    "Symbol Errors : ",
    "# Port counters: Lid ",
    "SymbolErrorCounter:....",
    "NIC statistics:",
    "  rx_discards_phy: ",
    "2: eth0: <",
    "    inet ",
    "eth0 UP ",
    "default via ",
    "Settings for ",
    "PING ",
    "nc: connect to ",
    "RDMA_Write BW Test",
    "#bytes BW average[",
    "/sys/class/infiniband/",
    "DEV PORT INDEX GID\n",
    "-I- Stage  Warnings  Errors  Comment\n-I- ",
    "-I- Discovery 1 ",
    "LISTEN 0 128 *:29500 *:* users:((",
    "tcp 0 0 0.0.0.0:1 0.0.0.0:* LISTEN ",
    "[{\"ifname\":\"mlx5_0\",\"port\":1,\"state\":",
];

#[test]
fn documents_of_ports() {
    check(
        r#"[{"ifindex":0,"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP","netdev":"ens1f0np0","netdev_index":4},
{"ifindex":1,"ifname":"mlx5_1","port":1,"subnet_prefix":"fe80:0000:0000:0000","lid":17,"state":"DOWN","physical_state":"DISABLED"}]"#,
        r#"
        line 1: Port(RdmaPort { device: "mlx5_0", port: 1, state: ("ACTIVE"), phys_state: ("LINKUP"), netdev: ("ens1f0np0") })
        line 1: Port(RdmaPort { device: "mlx5_1", port: 1, state: ("DOWN"), phys_state: ("DISABLED"), lid: (17) })
        "#,
    );
    check(
        r#"{"status":{"code":0,"message":"success"},"result":{"output":{"Operational Info":{"State":"Polling","Physical state":"ETH_AN_FSM_ENABLE","Speed":"IB-NDR","Width":"4x"},"Physical Counters and BER Info":{"Symbol Errors":"12","Raw Physical BER":"5E-9"},"Troubleshooting Info":{"Status Opcode":"2","Recommendation":"Negotiation failure"}}}}"#,
        r#"
        line 1: Counters(PortCounters { port: 1, errors: [(0, "Symbol Errors", 12)] })
        line 1: Port(RdmaPort { port: 1, state: ("POLLING"), phys_state: ("ETHANFSMENABLE"), rate_gbps: (400.0), lanes: (4) })
        "#,
    );
    // Devices, not ports; any other result.
    let unknown = "note Unrecognised line 0: JSON that no reader knows";
    check(r#"[{"ifindex":0,"ifname":"mlx5_0","node_type":"ca","fw":"28.36.1010"}]"#, unknown);
    check(r#"{"result":{"output":{"rows":[1,2]}}}"#, unknown);
}

#[test]
fn the_summary_of_ibdiagnet() {
    check(
        "\
---------------------------------------------
Summary
-I- Stage                     Warnings   Errors     Comment
-I- Discovery                 3          0
-I- Lids Check                0          0
-I- Links Check               0          0
-I- Port Counters             0          2
-I- Speed / Width checks      0          0

-I- You can find detailed errors/warnings in: /var/tmp/ibdiagnet2/ibdiagnet2.log
-I- Retrieved 4 5
",
        r#"
        line 4: Fabric { text: "Discovery: 0 errors, 3 warnings" }
        line 7: Fabric { is_error: true, text: "Port Counters: 2 errors, 0 warnings" }
        "#,
    );
}

#[test]
fn who_holds_a_port() {
    check(
        "\
State  Recv-Q Send-Q Local Address:Port  Peer Address:PortProcess
LISTEN 0      128          0.0.0.0:22         0.0.0.0:*    users:((\"sshd\",pid=1023,fd=3))
LISTEN 0      4096               *:29500            *:*    users:((\"pt_main_thread\",pid=4242,fd=7),(\"python3\",pid=4300,fd=7))
tcp        0      0 0.0.0.0:29501           0.0.0.0:*               LISTEN      4242/python3
tcp6       0      0 :::29502                :::*                    LISTEN      -
",
        r#"
        line 2: Listener { local: "0.0.0.0:22", holder: (("sshd", Pid(1023))) }
        line 3: Listener { local: "*:29500", holder: (("pt_main_thread", Pid(4242))) }
        line 4: Listener { local: "0.0.0.0:29501", holder: (("python3", Pid(4242))) }
        line 5: Listener { local: ":::29502" }
        "#,
    );
}
