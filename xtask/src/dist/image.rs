//! An OCI image layout with the static program and nothing else, packed as one file. Made without a network and without a
//! container engine: <https://github.com/opencontainers/image-spec>.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::archive::{Tree, documents, sum};
use super::{Places, Target, VERSION};

pub(super) fn make(places: &Places, target: Target) -> Result<PathBuf> {
    let mut tree = Tree::new(Vec::new(), places.time);
    tree.folder("tmp", 0o1777)?;
    tree.folder("usr", 0o755)?;
    tree.folder("usr/bin", 0o755)?;
    tree.file(&places.program(target)?, "usr/bin/ringleader", 0o755)?;
    tree.folder("licenses", 0o755)?;
    for document in documents(places).into_iter().chain([places.extras().join("THIRD-PARTY.md")]) {
        let name = document.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tree.file(&document, &format!("licenses/{name}"), 0o644)?;
    }
    let plain = tree.finish()?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
    packed.write_all(&plain)?;
    let layer = packed.finish()?;

    let config = json!({
        "architecture": target.oci,
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/ringleader"],
            "Env": ["PATH=/usr/bin"],
            "Labels": {
                "org.opencontainers.image.title": "ringleader",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.revision": places.commit,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sum(&plain))] },
        "history": [{ "created_by": "cargo xtask dist" }],
    });
    let config = serde_json::to_vec(&config)?;
    let blob = |kind: &str, bytes: &[u8]| -> Value {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{}", sum(bytes)),
            "size": bytes.len(),
        })
    };
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", &config),
        "layers": [blob("layer.v1.tar+gzip", &layer)],
    }))?;
    let mut entry = blob("manifest.v1+json", &manifest);
    entry["platform"] = json!({ "architecture": target.oci, "os": "linux" });
    entry["annotations"] = json!({ "org.opencontainers.image.ref.name": VERSION });
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    }))?;

    // Skopeo, podman, containerd and Kubernetes' loaders take `oci-archive:FILE`.
    let folder = places.out.join("image").join(target.oci);
    fs::create_dir_all(&folder)?;
    let put = |name: &str, bytes: &[u8]| -> Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, bytes)?;
        Ok(path)
    };
    let path = places.out.join(format!("ringleader-{VERSION}-{}.oci.tar", target.oci));
    let mut tar = Tree::new(File::create(&path)?, places.time);
    tar.file(&put("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?, "oci-layout", 0o644)?;
    tar.file(&put("index.json", &index)?, "index.json", 0o644)?;
    tar.folder("blobs", 0o755)?;
    tar.folder("blobs/sha256", 0o755)?;
    for bytes in [&config, &manifest, &layer] {
        let sum = sum(bytes);
        tar.file(&put(&sum, bytes)?, &format!("blobs/sha256/{sum}"), 0o644)?;
    }
    tar.finish()?;
    fs::remove_dir_all(places.out.join("image"))?;
    Ok(path)
}
