//! Keys, certificates and signatures that are refused, with the reasons.

use crate::{ROOT_HASH, certificate, key, read};
use kiln_signature::{Certificate, PrivateKey, sign, verify};

#[test]
fn signatures_that_prove_nothing_are_refused() {
    let cases = [
        ("p256", "rsa.p7s", "signed by another certificate: issuer CN=rsa of tests"),
        ("other", "rsa.p7s", "signed by another certificate"),
        ("rsa", "rsa.attached.p7s", "has contents of its own"),
        ("rsa", "two.p7s", "2 signers, where one is expected"),
        ("rsa", "rsa.sha1.p7s", "hash 1.3.14.3.2.26: not supported"),
        ("rsa", "rsa.crt", "signature: "),
        ("rsa", "roothash", "signature: "),
    ];
    for (owner, name, reason) in cases {
        let error = verify(&read(name), ROOT_HASH, &certificate(owner)).unwrap_err().to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
}

#[test]
fn other_contents_are_refused() {
    for (owner, name, reason) in [
        ("rsa", "rsa.p7s", "not one of these contents"),
        ("rsa", "rsa.attributes.p7s", "messageDigest: of other contents"),
        ("p256", "p256.p7s", "not one of these contents"),
        ("p384", "p384.p7s", "not one of these contents"),
    ] {
        for content in [&b""[..], &ROOT_HASH[1..], &[ROOT_HASH, b"\n"].concat()] {
            let error = verify(&read(name), content, &certificate(owner)).unwrap_err().to_string();
            assert!(error.contains(reason), "{name}: {error}");
        }
    }
}

#[test]
fn a_flipped_bit_of_the_signature_is_found() {
    // The rest names the signer, or is not used: certificates that travel with a signature prove nothing.
    for (owner, name, signed_len) in
        [("rsa", "rsa.p7s", 256), ("rsa", "rsa.attributes.p7s", 256), ("p256", "p256.p7s", 64)]
    {
        let (good, certificate) = (read(name), certificate(owner));
        for byte in 0..good.len() {
            let mut bad = good.clone();
            bad[byte] ^= 1 << (byte % 8);
            assert!(verify(&bad, b"other", &certificate).is_err(), "{name}: byte {byte}");
            if byte >= good.len() - signed_len {
                assert!(verify(&bad, ROOT_HASH, &certificate).is_err(), "{name}: byte {byte}");
            }
        }
    }
}

#[test]
fn a_signature_that_is_cut_is_refused() {
    let (good, certificate) = (read("rsa.attributes.p7s"), certificate("rsa"));
    for len in 0..good.len() {
        assert!(verify(&good[..len], ROOT_HASH, &certificate).is_err(), "{len}");
    }
    assert!(verify(&[&good[..], &[0]].concat(), ROOT_HASH, &certificate).is_err());
}

#[test]
fn keys_are_refused_with_the_remedy() {
    let problem = |name: &str| {
        let text = String::from_utf8(read(name)).unwrap();
        PrivateKey::parse_pem(&text).err().unwrap().to_string()
    };
    assert!(problem("rsa.encrypted.key").contains("has a password"));
    assert!(problem("rsa.pkcs1.key").contains("openssl pkcs8 -topk8 -nocrypt` converts it"));
    assert!(problem("rsa.crt").contains("something else"));
    assert!(problem("roothash").contains("not in PEM"));
    assert!(problem("ed.key").contains("private key 1.3.101.112: not supported"));
    let error = Certificate::parse(&read("ed.crt")).unwrap_err().to_string();
    assert!(error.contains("public key 1.3.101.112: not supported"), "{error}");
    let error = Certificate::parse(&read("rsa.key")).unwrap_err().to_string();
    assert!(error.contains("certificate: "), "{error}");
    let error = sign(ROOT_HASH, &key("rsa"), &certificate("other")).unwrap_err().to_string();
    assert!(error.contains("not of this private key"), "{error}");
}
