//! How a message of OTLP gets to its collector: compressed or not, and whom TLS trusts.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::message::Attribute;
use super::wire::FieldValue;

/// Where one signal goes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) url: String,
    pub(super) is_json: bool,
    pub(super) is_gzip: bool,
    pub(super) headers: Vec<Attribute>,
    pub(super) limit: Duration,
    pub(super) trust: Trust,
}

/// Files of TLS, in PEM. Each message reads them again, so that a renewed certificate needs no restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trust {
    /// Of the authorities that are believed in place of the public ones.
    pub(super) authorities: Option<PathBuf>,
    /// What `watch` shows of itself: its certificates, and their key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl Trust {
    fn config(&self) -> Result<TlsConfig, String> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &self.authorities {
            tls = tls.root_certs(RootCerts::from(certificates(path)?));
        }
        if let Some((chain, key)) = &self.client {
            let chain = certificates(chain)?;
            let key = PrivateKey::from_pem(&read(key)?)
                .map_err(|error| format!("{} holds no private key: {error}", key.display()))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        Ok(tls.build())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("failed to read {}: {error}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let mut out = Vec::new();
    for item in parse_pem(&read(path)?) {
        match item {
            Ok(PemItem::Certificate(one)) => out.push(one),
            Ok(_) => {}
            Err(error) => return Err(format!("{} is no PEM: {error}", path.display())),
        }
    }
    if out.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(out) }
}

fn packed(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
}

/// Sends one message.
pub(super) fn post(endpoint: &Endpoint, body: &FieldValue) -> Result<(), String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(endpoint.limit))
        .user_agent(concat!("ringleader/", env!("CARGO_PKG_VERSION")))
        .max_redirects(0)
        .tls_config(endpoint.trust.config()?)
        .build()
        .into();
    let mut request = agent.post(&endpoint.url);
    for (name, value) in &endpoint.headers {
        request = request.header(name, value);
    }
    let (kind, mut bytes) = if endpoint.is_json {
        ("application/json", body.to_json().to_string().into_bytes())
    } else {
        ("application/x-protobuf", body.to_protobuf())
    };
    if endpoint.is_gzip {
        bytes = packed(&bytes)?;
        request = request.header("content-encoding", "gzip");
    }
    let sent = request.content_type(kind).send(&bytes[..]);
    // The path or the query of an address may be a secret.
    sent.map(|_| ()).map_err(|error| {
        let host = crate::watch::hooks::host_of(&endpoint.url);
        format!("{host}: {}", error.to_string().replace(&endpoint.url, host))
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn files_that_are_none_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let trust = Trust { authorities: Some(path.clone()), client: None };
        let why = trust.config().unwrap_err();
        assert!(why.starts_with("failed to read ") && why.contains("ca.pem"), "{why}");
        std::fs::write(&path, "no certificate\n").unwrap();
        let why = trust.config().unwrap_err();
        assert!(why.ends_with("ca.pem holds no certificate"), "{why}");
        assert!(Trust::default().config().is_ok());
    }
}
