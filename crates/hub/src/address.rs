//! `dir:/path` and `etcd://host:port[,host:port]/prefix`.

use std::path::PathBuf;
use std::time::Duration;

use crate::OpenError;

/// Address of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A directory that all nodes see.
    Directory(PathBuf),
    /// An etcd cluster.
    Etcd(EtcdAddress),
}

/// Where etcd is, and under which keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAddress {
    /// `host:port` of each member.
    pub endpoints: Vec<String>,
    /// Prefix of all keys, without slashes at its ends; never empty.
    pub prefix: String,
    /// Age above which the analyser lets etcd compact old versions of keys. None leaves it to etcd's own settings.
    pub compact_after: Option<Duration>,
    /// Connections to each member.
    pub n_connections: usize,
}

/// Prefix if the address has none.
const DEFAULT_PREFIX: &str = "ringleader";
/// A watcher that was cut off resumes without a new list if it returns within this time; etcd's store stays small.
const DEFAULT_COMPACT_AFTER: Duration = Duration::from_mins(1);

impl Address {
    /// Parses an address. Errors: an unknown scheme, a path that is not absolute, an endpoint without a port.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let wrong = |why: &str| OpenError::Address { address: text.to_owned(), why: why.to_owned() };
        if let Some(path) = text.strip_prefix("dir:") {
            let path = PathBuf::from(path);
            if !path.is_absolute() {
                return Err(wrong("the path of a directory must begin with /"));
            }
            return Ok(Self::Directory(path));
        }
        let Some(rest) = text.strip_prefix("etcd://") else {
            return Err(wrong("expected dir:/path or etcd://host:port[,host:port]/prefix"));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let mut endpoints = Vec::new();
        for host in hosts.split(',') {
            let Some((name, port)) = host.rsplit_once(':') else {
                return Err(wrong("every etcd host needs its port, usually 2379"));
            };
            if name.is_empty() || port.parse::<u16>().is_err() || name.contains(['@', ' ', '/']) {
                return Err(wrong("an etcd host has the form host:port, or [::1]:port for IPv6"));
            }
            endpoints.push(host.to_owned());
        }
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { DEFAULT_PREFIX } else { prefix };
        if prefix.chars().any(char::is_control) {
            return Err(wrong("the prefix contains a control character"));
        }
        let mut address = EtcdAddress {
            endpoints,
            prefix: prefix.to_owned(),
            compact_after: Some(DEFAULT_COMPACT_AFTER),
            n_connections: 1,
        };
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("compact", "no")) => address.compact_after = None,
                Some(("compact", seconds)) => {
                    let seconds = seconds.parse().ok().filter(|seconds| (5..=86_400).contains(seconds));
                    let seconds =
                        seconds.ok_or_else(|| wrong("compact must be `no` or 5 to 86400 seconds"))?;
                    address.compact_after = Some(Duration::from_secs(seconds));
                }
                Some(("connections", n)) => {
                    let n = n.parse().ok().filter(|n| (1..=64).contains(n));
                    address.n_connections = n.ok_or_else(|| wrong("connections must be 1 to 64"))?;
                }
                _ => return Err(wrong("only compact= and connections= are allowed after ?")),
            }
        }
        Ok(Self::Etcd(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn etcd(text: &str) -> EtcdAddress {
        match Address::parse(text) {
            Ok(Address::Etcd(address)) => address,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(Address::parse("dir:/a/b").unwrap(), Address::Directory("/a/b".into()));
        let address = etcd("etcd://a:1,[::1]:2/jobs/seven/?compact=no&connections=4");
        assert_eq!(address.endpoints, ["a:1", "[::1]:2"]);
        assert_eq!(
            (address.prefix.as_str(), address.compact_after, address.n_connections),
            ("jobs/seven", None, 4)
        );
        assert_eq!(etcd("etcd://a:1").prefix, "ringleader");
        assert_eq!(etcd("etcd://a:1/?compact=30").compact_after, Some(Duration::from_secs(30)));
        for wrong in [
            "",
            "/a",
            "dir:a",
            "etcd://",
            "etcd://a",
            "etcd://a:x/",
            "etcd://:1/",
            "etcd://u:p@a:1/",
            "etcd://a:1/p?compact=1",
            "etcd://a:1/p?what=1",
            "http://a:1",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
