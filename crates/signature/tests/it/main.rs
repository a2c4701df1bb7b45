//! Signatures beside those of OpenSSL, and signatures that must not be accepted.

mod openssl;
mod refused;

use kiln_signature::{Certificate, PrivateKey};
use std::path::{Path, PathBuf};

/// Root hash whose signatures lie in `keys/`.
const ROOT_HASH: &[u8] = b"6aa9e5ba5b1d6fa2c38dbdb3d1fc0ab4a0a9bb5c8f7c8a5b1f0f7c6e5d4c3b2a";

fn keys() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/keys")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(keys().join(name)).unwrap()
}

fn key(name: &str) -> PrivateKey {
    PrivateKey::parse_pem(std::str::from_utf8(&read(&format!("{name}.key"))).unwrap()).unwrap()
}

fn certificate(name: &str) -> Certificate {
    Certificate::parse(&read(&format!("{name}.crt"))).unwrap()
}
