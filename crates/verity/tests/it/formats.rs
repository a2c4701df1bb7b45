//! Trees as `veritysetup` makes and verifies them. `golden.txt` has the root hashes that it printed, for machines
//! without it; `KILN_BLESS=1` writes the file again.

use crate::common::{Sealed, has, parameters};
use kiln_tests::temp::TempDir;
use kiln_verity::sidecar::Sidecar;
use kiln_verity::{Algorithm, Location, Parameters, Superblock, find_behind};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const BLOCKS: [u64; 8] = [1, 2, 127, 128, 129, 300, 16384, 16385];
const SALT: &str = "00112233445566778899aabbccddeeff0123456789abcdef0011223344556677";
const UUID: &str = "6a64ad01-5d21-4f2b-9a4b-2d0c1e0f7788";

fn salt_bytes(salt: &str) -> Vec<u8> {
    let digits: Vec<u8> = salt.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn cases() -> Vec<(String, Parameters, &'static str)> {
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL {
        for block_size in [4096, 512] {
            for salt in [SALT, "-"] {
                for blocks in BLOCKS {
                    let name =
                        format!("{algorithm} {block_size} {} {blocks}", if salt == "-" { "none" } else { "salt" });
                    let salt_bytes = if salt == "-" { Vec::new() } else { salt_bytes(salt) };
                    cases.push((name, parameters(algorithm, block_size, blocks, &salt_bytes), salt));
                }
            }
        }
    }
    cases
}

fn golden() -> BTreeMap<String, String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, hash)| (name.to_owned(), hash.to_owned())).collect()
}

fn veritysetup(args: &[&str]) -> Output {
    Command::new("veritysetup").args(args).output().unwrap()
}

#[test]
fn root_hashes_are_those_of_veritysetup() {
    let golden = golden();
    assert_eq!(golden.len(), cases().len());
    for (name, parameters, _) in cases() {
        assert_eq!(golden[&name], Sealed::beside(&parameters).tree.root_hash().to_string(), "{name}");
    }
}

#[test]
fn trees_are_those_of_veritysetup_byte_for_byte() {
    if !has("veritysetup") {
        return;
    }
    let scratch = TempDir::in_memory("verity").unwrap();
    let paths = ["data", "tree", "hash"].map(|name| scratch.join(name).into_os_string().into_string().unwrap());
    let [data, tree, hash] = &paths;
    let mut table =
        String::from("# algorithm, block size, salt, blocks of data, root hash as veritysetup 2.6.1 prints it\n");
    for (name, parameters, salt) in cases() {
        let sealed = Sealed::beside(&parameters);
        fs::write(data, &sealed.data).unwrap();
        let _ = fs::remove_file(tree);
        let size = parameters.data_block_size;
        let options = [
            format!("--hash={}", parameters.algorithm),
            format!("--data-block-size={size}"),
            format!("--hash-block-size={size}"),
            format!("--salt={salt}"),
            format!("--uuid={UUID}"),
            format!("--root-hash-file={hash}"),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let made = veritysetup(&[&["format"], &options[..], &[data, tree]].concat());
        assert!(made.status.success(), "{name}: {made:?}");
        let root_hash = fs::read_to_string(hash).unwrap();
        writeln!(table, "{name} {root_hash}").unwrap();
        let mut ours = Vec::new();
        sealed.tree.write(&sealed.tree.superblock(Some(UUID.parse().unwrap())), 0, &mut ours).unwrap();
        // For one block it writes 4096 bytes, whatever the size of a block.
        let theirs = fs::read(tree).unwrap();
        ours.resize(ours.len().max(theirs.len().min(4096)), 0);
        assert!(ours == theirs, "{name}: {} and {} bytes", ours.len(), theirs.len());
        assert_eq!(sealed.tree.root_hash().to_string(), root_hash, "{name}");

        fs::write(tree, &sealed.stored).unwrap();
        let verified = veritysetup(&["verify", data, tree, &root_hash]);
        assert!(verified.status.success(), "{name}: {verified:?}");
        let behind = Sealed::behind(&parameters);
        fs::write(data, &behind.stored).unwrap();
        let offset = format!("--hash-offset={}", behind.hash_off);
        let verified = veritysetup(&["verify", &offset, data, data, &root_hash]);
        assert!(verified.status.success(), "{name}: {verified:?}");
    }
    if std::env::var_os("KILN_BLESS").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden.txt"), table).unwrap();
    }
}

#[test]
fn what_is_written_is_right() {
    for (name, parameters, _) in cases() {
        for sealed in [Sealed::beside(&parameters), Sealed::behind(&parameters)] {
            let report = sealed.verify().unwrap();
            assert!(report.is_good(), "{name}: {}", report.findings[0]);
            assert_eq!((report.uncovered, report.unverifiable, report.has_own_uuid), (0, 0, true), "{name}");
            let bytes = sealed.stored[sealed.hash_off as usize..][..512].try_into().unwrap();
            assert_eq!(Superblock::decode(bytes, 0).unwrap(), sealed.tree.superblock(None));
            assert_eq!(sealed.tree.stored_len(sealed.hash_off), sealed.stored.len() as u64 - sealed.hash_off);
        }
    }
}

#[test]
fn a_tree_behind_data_is_found_with_and_without_their_end() {
    for (name, parameters, _) in cases() {
        let sealed = Sealed::behind(&parameters);
        let source = kiln_read::MemorySource::new(sealed.stored.clone());
        for end in [None, Some(sealed.hash_off), Some(sealed.hash_off - 100)] {
            assert_eq!(find_behind(&source, end).unwrap(), Some(sealed.hash_off), "{name}");
        }
        let without = kiln_read::MemorySource::new(sealed.data);
        assert_eq!(find_behind(&without, Some(sealed.hash_off)).unwrap(), None);
        assert_eq!(find_behind(&without, None).unwrap(), None);
    }
}

#[test]
fn sidecars_are_those_of_containerd() {
    let sealed = Sealed::behind(&Parameters::new(3));
    let sidecar = Sidecar { root_hash: *sealed.tree.root_hash(), hash_off: sealed.hash_off };
    let text = format!("{{\n  \"roothash\": \"{}\",\n  \"hashoffset\": 12288\n}}", sidecar.root_hash);
    assert_eq!(sidecar.text(), text);
    assert_eq!(Sidecar::parse(text.as_bytes()), Ok(sidecar));
    let more = text.replace("{\n", "{\"other\": [1], ");
    assert_eq!(Sidecar::parse(more.as_bytes()), Ok(sidecar));
    for wrong in ["", "[]", "{}", "{\"roothash\":\"\",\"hashoffset\":1}", "{\"roothash\":\"ab\",\"hashoffset\":1}"] {
        assert!(Sidecar::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
    assert!(Sidecar::parse(text.replace("12288", "-1").as_bytes()).is_err());

    let scratch = TempDir::new("sidecar").unwrap();
    let image = scratch.join("layer.erofs");
    fs::write(&image, &sealed.data).unwrap();
    let path = Sidecar::path_of(&image);
    assert_eq!(path, scratch.join("layer.erofs.dmverity"));
    assert_eq!(Sidecar::read(&path).unwrap(), None);
    sidecar.write(&path, kiln_output::Existing::Keep).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(Sidecar::read(&path).unwrap(), Some(sidecar));
    assert!(sidecar.write(&path, kiln_output::Existing::Keep).is_err());
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o644);
    let found = kiln_verity::find_tree(&image, &kiln_read::MemorySource::new(sealed.data), None).unwrap().unwrap();
    assert_eq!((found.location, found.sidecar), (Location::Behind { hash_off: 12288 }, Some(sidecar)));
}
