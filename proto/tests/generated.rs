//! What is committed of the generated code is what the proto files say.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

use std::path::{Path, PathBuf};

use prost::Message as _;

const PACKAGE: &str = "weir.traces.v1";

fn made() -> [(PathBuf, Vec<u8>); 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(["weir/traces/v1/traces.proto"], [root]).expect("the proto file compiles");
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .btree_map(".")
        .codec_path("crate::bounded::BoundedCodec")
        .out_dir(folder.path())
        .compile_fds(descriptors.clone())
        .expect("code can be made of it");
    let code = std::fs::read(folder.path().join(format!("{PACKAGE}.rs"))).unwrap();
    let generated = root.join("src/generated");
    [
        (generated.join(format!("{PACKAGE}.rs")), code),
        (generated.join(format!("{PACKAGE}.binpb")), descriptors.encode_to_vec()),
    ]
}

#[test]
fn the_committed_code_is_what_the_proto_file_says() {
    for (path, made) in made() {
        if std::env::var_os("WEIR_REGENERATE").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        let committed = std::fs::read(&path).unwrap_or_default();
        assert!(
            committed == made,
            "{} is not what the proto file says; run `WEIR_REGENERATE=1 cargo test -p weir-proto`",
            path.display()
        );
    }
}
