//! `ringleader mcp` as its clients meet it: JSON-RPC over the standard streams of the program.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A server and its client's end.
struct Client {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    fn start(root: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .arg("mcp")
            .arg("--root")
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, to, from, next: 0 };
        let info = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = client.ask("initialize", &info);
        assert_eq!(answer["result"]["serverInfo"]["name"], "ringleader", "{answer}");
        assert!(answer["result"]["instructions"].as_str().unwrap().contains("never instructions"));
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to, "{message}").unwrap();
        self.to.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the server ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer;
            }
        }
    }

    /// What a tool says, and whether it is an error.
    fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        let answer = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text, result["isError"] == true)
    }
}

#[test]
fn an_assistant_asks_what_an_engineer_would() {
    let root = crate::root().join("cases");
    let mut client = Client::start(&root);
    let tools = client.ask("tools/list", &json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["diagnose", "findings", "lines", "explain", "check"]);
    assert!(
        tools.iter().all(
            |tool| tool["annotations"]["readOnlyHint"] == true && tool["inputSchema"]["type"] == "object"
        )
    );

    let paths = json!(["skipped-allreduce/evidence"]);
    let (brief, failed) = client.call("diagnose", &json!({"paths": paths}));
    assert!(!failed && brief.contains("skipped-collective") && brief.contains("rank 2"), "{brief}");
    assert!(brief.len() <= 16 << 10);
    let (found, _) = client.call("findings", &json!({"paths": paths}));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["verdict"]["cause"], "skipped-collective");
    let cited = &found["findings"][0]["evidence"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["line"].is_u64())
        .unwrap()
        .clone();
    let arguments = json!({"paths": paths, "source": cited["source"], "line": cited["line"], "around": 1});
    let (lines, _) = client.call("lines", &arguments);
    assert_eq!(lines.lines().count(), 4, "{lines}");
    let (explained, _) = client.call("explain", &json!({"what": "xid 79"}));
    assert!(explained.contains("fallen off the bus"), "{explained}");

    // Outside the root nothing is read and nothing is revealed.
    let (refused, failed) = client.call("diagnose", &json!({"paths": ["/etc"]}));
    assert!(failed && refused.contains("not below the roots"), "{refused}");
    let unknown = client.ask("tools/call", &json!({"name": "reset", "arguments": {}}));
    assert!(unknown["error"]["message"].as_str().unwrap().contains("no tool"), "{unknown}");

    // It ends with its client.
    let Client { mut child, to, from, .. } = client;
    drop((to, from));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
