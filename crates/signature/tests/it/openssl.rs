//! The same bytes as OpenSSL's, stored and made anew.

use crate::{ROOT_HASH, certificate, key, read};
use kiln_signature::{Certificate, Hash, PrivateKey, sign, verify};
use kiln_tests::temp::TempDir;
use std::path::Path;
use std::process::Command;

#[test]
fn a_signature_of_rsa_has_the_bytes_of_openssl() {
    let certificate = certificate("rsa");
    assert_eq!(sign(ROOT_HASH, &key("rsa"), &certificate).unwrap(), read("rsa.p7s"));
    assert_eq!(certificate.subject(), "CN=rsa of tests,O=kiln");
    let validity = certificate.validity();
    assert!(validity.not_before < validity.not_after, "{validity:?}");
}

#[test]
fn stored_signatures_of_all_forms_are_accepted() {
    let cases = [
        ("rsa", "rsa.p7s", Hash::Sha256, false),
        ("rsa", "rsa.nocerts.p7s", Hash::Sha256, false),
        ("rsa", "rsa.attributes.p7s", Hash::Sha256, true),
        ("p256", "p256.p7s", Hash::Sha256, false),
        ("p256", "p256.keyid.p7s", Hash::Sha512, true),
        ("p384", "p384.p7s", Hash::Sha384, false),
    ];
    for (owner, name, hash, has_attributes) in cases {
        let verified = verify(&read(name), ROOT_HASH, &certificate(owner)).unwrap();
        assert_eq!((verified.hash, verified.has_attributes), (hash, has_attributes), "{name}");
    }
}

#[test]
fn own_signatures_of_curves_are_accepted_and_always_the_same() {
    for owner in ["p256", "p384"] {
        let (key, certificate) = (key(owner), certificate(owner));
        let signature = sign(ROOT_HASH, &key, &certificate).unwrap();
        assert_eq!(signature, sign(ROOT_HASH, &key, &certificate).unwrap(), "{owner}");
        verify(&signature, ROOT_HASH, &certificate).unwrap();
    }
}

fn openssl(dir: &Path, args: &[&str]) -> bool {
    let done = Command::new("openssl").args(args).current_dir(dir).output().unwrap();
    done.status.success()
}

#[test]
fn openssl_accepts_new_signatures_and_makes_the_same() {
    if Command::new("openssl").arg("version").output().is_err() {
        return kiln_tests::without("openssl");
    }
    let dir = TempDir::in_memory("openssl").unwrap();
    let path = |name: &str| dir.join(name);
    std::fs::write(path("content"), ROOT_HASH).unwrap();
    for new in [&["rsa:2048"][..], &["rsa:4096"], &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]] {
        let (kind, options) = new.split_first().unwrap();
        let args = [&["req", "-x509", "-newkey", kind], options].concat();
        let args = [&args[..], &["-nodes", "-keyout", "key", "-out", "crt", "-subj", "/CN=new"]].concat();
        assert!(openssl(dir.path(), &args), "{new:?}");
        let text = std::fs::read_to_string(path("key")).unwrap();
        let key = PrivateKey::parse_pem(&text).unwrap();
        let certificate = Certificate::parse(&std::fs::read(path("crt")).unwrap()).unwrap();
        let signature = sign(ROOT_HASH, &key, &certificate).unwrap();
        std::fs::write(path("p7s"), &signature).unwrap();
        let args = "smime -verify -binary -inform der -in p7s -content content -certfile crt -nointern -noverify";
        assert!(openssl(dir.path(), &args.split(' ').collect::<Vec<_>>()), "{new:?}");
        let args = "smime -sign -noattr -binary -in content -inkey key -signer crt -outform der -out theirs";
        assert!(openssl(dir.path(), &args.split(' ').collect::<Vec<_>>()), "{new:?}");
        let theirs = std::fs::read(path("theirs")).unwrap();
        verify(&theirs, ROOT_HASH, &certificate).unwrap();
        if kind.starts_with("rsa") {
            assert_eq!(signature, theirs, "{new:?}");
        }
    }
}

#[test]
fn a_certificate_in_der_is_the_same() {
    let pem = String::from_utf8(read("rsa.crt")).unwrap();
    let from_pem = certificate("rsa");
    let from_der = Certificate::parse(from_pem.der()).unwrap();
    assert_eq!(from_der.fingerprint(), from_pem.fingerprint());
    // Text in front is usual.
    let from_text = Certificate::parse(format!("\n{pem}").as_bytes()).unwrap();
    assert_eq!(from_text.fingerprint(), from_pem.fingerprint());
}
