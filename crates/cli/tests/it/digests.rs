//! Digests of contents: copied from one image to the next, compared where contents are read, and never computed from
//! rotten contents.

use crate::common::trees::{OLD, set_time, write};
use crate::common::{Scratch, fails, json, number, run, stderr, stdout, text};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Makes a tree of files of `OLD` and an image of it, packed with `options`. In a copy of the image one byte of
/// `big`, which is stored uncompressed, is wrong.
fn rotten(options: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    let src = scratch.path("src");
    fs::create_dir(&src).unwrap();
    let big: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    write(Path::new(&src).join("big"), &big, OLD);
    write(Path::new(&src).join("small"), text(1, 9000), OLD);
    write(Path::new(&src).join("late"), "newest", OLD + 9);
    set_time(Path::new(&src), OLD);
    let good = scratch.path("good");
    stdout(&[&["pack", "--quiet", "--hint", "/big=none", &src, &good][..], options].concat());
    let mut bytes = fs::read(scratch.path("good")).unwrap();
    let at = bytes.windows(64).position(|window| *window == big[100_000..100_064]).expect("stored as it is");
    bytes[at + 7] ^= 0x10;
    fs::write(scratch.path("rotten"), bytes).unwrap();
    scratch
}

fn checked(image: &str) -> Value {
    json(&run(&["check", "--json", image]).stdout)
}

/// Checks that all contents of an image match their digests.
fn is_whole(image: &str) {
    let checked = checked(image);
    assert_eq!(
        (number(&checked, "problem_count"), &checked["digested_bytes"]),
        (0, &checked["file_bytes"]),
        "{checked}"
    );
}

/// Checks that `kiln check` finds `big` of an image rotten.
fn is_found(image: &str) {
    let checked = checked(image);
    assert_eq!((number(&checked, "problem_count"), &checked["problems"][0]["path"]), (1, &"/big".into()), "{checked}");
}

#[test]
fn the_next_image_has_digests_if_the_last_one_has() {
    let scratch = rotten(&["--content-digests"]);
    let [src, good, new] = ["src", "good", "new"].map(|name| scratch.path(name));
    for args in [
        &["pack", "--quiet", "--base", &good, &src, &new][..],
        &["pack", "--quiet", "--base", &good, "--preset", "plain", &src, &new],
        &["pack", "--quiet", &good, &new],
        &["pack", "--quiet", &good, &src, "-o", &new],
        &["convert", "--quiet", &good, &new],
        &["relayout", "--quiet", &good, &new],
        &["relayout", "--quiet", &good, &new],
    ] {
        stdout(args);
        is_whole(&new);
        fs::remove_file(&new).unwrap();
        if args[0] == "pack" {
            stdout(&[args, &["--no-content-digests"]].concat());
            assert_eq!(number(&checked(&new), "digested_bytes"), 0);
            fs::remove_file(&new).unwrap();
        }
    }
    stdout(&["pack", "--quiet", &src, &new]);
    assert_eq!(number(&checked(&new), "digested_bytes"), 0, "nobody has asked for some");
}

#[test]
fn updates_keep_digests() {
    for (name, options) in
        [("hidden", &[][..]), ("announced", &["--kernel", "6.18"]), ("plain", &["--preset", "plain"])]
    {
        let scratch = rotten(&[&["--content-digests"][..], options].concat());
        let [src, good, more] = ["src", "good", "more"].map(|name| scratch.path(name));
        let announced =
            |image: &str| json(&stdout(&["info", "--json", image]))["feature_compat"].as_u64().unwrap() & 0x20;
        let before = announced(&good);
        assert_eq!(before > 0, name == "announced");
        write(Path::new(&src).join("new"), text(5, 20_000), OLD + 20);
        stdout(&["update", "--quiet", &good, &src]);
        is_whole(&good);
        fs::create_dir(&more).unwrap();
        write(Path::new(&more).join("added"), text(6, 3000), OLD);
        stdout(&["update", "--quiet", &good, "--add", &more, "--remove", "small"]);
        is_whole(&good);
        stdout(&["update", "--quiet", &good, "--replace", &format!("big={src}/small")]);
        is_whole(&good);
        assert_eq!(announced(&good), before, "{name}");
        let said = stderr(&run(&["update", &good, &src]));
        assert!(said.contains("contents: verifiable"), "{said}");
        stdout(&["update", "--quiet", "--no-content-digests", &good, &src]);
        assert_eq!(number(&checked(&good), "digested_bytes"), 0);
        let said = stderr(&run(&["update", &good, &src]));
        assert!(said.contains("contents: not verifiable"), "{said}");
        stdout(&["update", "--quiet", "--content-digests", &good, &src]);
        is_whole(&good);
    }
}

#[test]
fn what_is_moved_keeps_its_digest() {
    let scratch = rotten(&["--content-digests"]);
    let [src, rotten, new] = ["src", "rotten", "new"].map(|name| scratch.path(name));
    is_found(&rotten);
    for args in [
        &["relayout", "--quiet", &rotten, &new][..],
        &["relayout", "--quiet", &rotten, &new],
        &["pack", "--quiet", "--hint", "/big=none", "--base", &rotten, &src, &new],
        &["pack", "--quiet", "--hint", "/big=none", "--content-digests", "--base", &rotten, &src, &new],
    ] {
        stdout(args);
        is_found(&new);
        fs::remove_file(&new).unwrap();
    }
    stdout(&["update", "--quiet", &rotten, &src]);
    is_found(&rotten);
}

/// Options for chunks, which are never reused.
const CHUNKS: [&str; 4] = ["--preset", "plain", "--layout", "chunk-size=4k"];

/// Checks that the source counts wherever something is read: only equal data is reused.
#[test]
fn an_increment_stores_anew_what_is_rotten_in_its_base() {
    for digests in [&["--content-digests"][..], &["--no-content-digests"]] {
        for options in [&["--base-trust", "content"][..], &CHUNKS] {
            let scratch = rotten(&[digests, if options == CHUNKS { options } else { &[] }].concat());
            let [src, rotten, new] = ["src", "rotten", "new"].map(|name| scratch.path(name));
            let pack = ["pack", "--quiet", "--content-digests", "--base", &rotten, &src, &new];
            stdout(&[&pack[..], options].concat());
            is_whole(&new);
            stdout(&["diff", &new, &src]);
        }
        // A file that is reused because of its time has the digest of the base or of the source, which shows the
        // damage.
        let scratch = rotten(digests);
        let [src, rotten, new] = ["src", "rotten", "new"].map(|name| scratch.path(name));
        stdout(&["pack", "--quiet", "--hint", "/big=none", "--content-digests", "--base", &rotten, &src, &new]);
        is_found(&new);
    }
}

/// A base whose times show no change, though there is one: data that is not reused is stored as read, with its own
/// digest.
#[test]
fn digests_are_of_what_is_stored() {
    let scratch = rotten(&[&["--content-digests"][..], &CHUNKS].concat());
    let [src, good, new] = ["src", "good", "new"].map(|name| scratch.path(name));
    write(Path::new(&src).join("small"), text(77, 9000), OLD);
    stdout(&[&["pack", "--quiet", "--base", &good, &src, &new][..], &CHUNKS].concat());
    is_whole(&new);
    stdout(&["diff", &new, &src]);
}

/// A source that is an image has digests of its own, independent of the base.
#[test]
fn a_rotten_source_over_a_good_base_is_told() {
    let scratch = rotten(&[&["--content-digests"][..], &CHUNKS].concat());
    let [good, rotten, new] = ["good", "rotten", "new"].map(|name| scratch.path(name));
    let pack = ["pack", "--quiet", "--base", &good, &rotten, &new];
    fails(&[&pack[..], &CHUNKS].concat(), 1, "big: damaged in ");
    fails(&[&pack[..], &CHUNKS, &["--base-trust", "content"]].concat(), 1, "big: damaged in ");
}

#[test]
fn what_is_read_is_compared() {
    let scratch = rotten(&[&["--content-digests"][..], &CHUNKS].concat());
    let [rotten, new] = ["rotten", "new"].map(|name| scratch.path(name));
    let shown = |args: &[&str]| {
        fails(args, 1, "big: damaged in ");
        let said = stderr(&run(args));
        assert!(
            said.contains(&rotten) && said.contains("its SHA-256 is ") && said.contains(" is stored for it"),
            "{said}"
        );
        assert!(!Path::new(&new).exists());
    };
    let pack = ["pack", "--quiet", &rotten, &new];
    let off = ["pack", "--quiet", "--no-content-digests", &rotten, &new];
    // Chunks are stored again.
    let anew = ["relayout", "--quiet", &rotten, &new];
    for args in [&pack[..], &off, &["convert", "--quiet", &rotten, &new], &anew] {
        shown(args);
    }
    for args in [&pack[..], &anew] {
        let kept = run(&[args, &["--keep-going", "--json"]].concat());
        assert_eq!(kept.status.code(), Some(3), "{}", stderr(&kept));
        assert!(
            stderr(&kept).contains("stored as it was read, with its old digest: big: damaged in "),
            "{}",
            stderr(&kept)
        );
        assert_eq!(json(&kept.stdout)["damaged"][0]["path"], "big");
        is_found(&new);
        fs::remove_file(&new).unwrap();
    }
}

#[test]
fn restores_compare_contents() {
    let scratch = rotten(&["--content-digests"]);
    let [good, rotten, dir, tar] = ["good", "rotten", "dir", "out.tar"].map(|name| scratch.path(name));
    let damage = "stored digest: the SHA-256 of the contents is ";
    fails(&["extract", &rotten, &dir], 1, damage);
    assert!(!Path::new(&dir).join("big").exists());
    fs::remove_dir_all(&dir).unwrap();
    let kept = run(&["extract", "--keep-going", "--json", &rotten, &dir]);
    assert_eq!(kept.status.code(), Some(3), "{}", stderr(&kept));
    let told = json(&kept.stdout);
    assert_eq!((&told["skipped"][0]["path"], number(&told, "digested_bytes")), (&"big".into(), 9006), "{told}");
    assert!(!Path::new(&dir).join("big").exists() && Path::new(&dir).join("small").exists());
    fails(&["export", &rotten, &tar], 1, damage);
    assert!(!Path::new(&tar).exists());
    let kept = run(&["export", "--keep-going", "--json", &rotten, &tar]);
    assert_eq!(kept.status.code(), Some(3), "{}", stderr(&kept));
    assert_eq!(json(&kept.stdout)["rotten"][0]["path"], "big");
    let cat = run(&["cat", &rotten, "big"]);
    assert_eq!((cat.status.code(), cat.stdout.len()), (Some(1), 300_000));
    assert!(stderr(&cat).contains(damage) && stderr(&cat).contains("big"), "{}", stderr(&cat));
    fs::remove_dir_all(&dir).unwrap();
    let said = stderr(&run(&["extract", &good, &dir]));
    assert!(said.contains("; contents: verified\n"), "{said}");
    let (said, plain) = (stderr(&run(&["export", "--force", &good, &tar])), scratch.path("plain"));
    assert!(said.contains("; contents: verified\n"), "{said}");
    stdout(&["pack", "--quiet", &scratch.path("src"), &plain]);
    fs::remove_dir_all(&dir).unwrap();
    for args in [&["extract", &plain, &dir][..], &["export", "--force", &plain, &tar], &["check", &plain]] {
        let said = stderr(&run(args));
        assert!(said.contains("contents: not verifiable"), "{args:?}: {said}");
    }
}

/// Large files are extracted in ranges, by several threads, and without holes: each byte counts in the digest.
#[test]
fn large_files_with_holes_are_compared() {
    let scratch = Scratch::new();
    let [src, image, dir] = ["src", "image", "dir"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    let large = File::create(format!("{src}/large")).unwrap();
    large.set_len(150 << 20).unwrap();
    for (seed, at) in [(1, 0_u64), (2, 40 << 20), (3, (64 << 20) + 5000), (4, (100 << 20) + 77), (5, 149 << 20)] {
        large.write_all_at(&text(seed, 900_000), at).unwrap();
    }
    File::create(format!("{src}/end")).unwrap().set_len(70 << 20).unwrap();
    for options in [&["--preset", "fast"][..], &["--preset", "plain"]] {
        stdout(&[&["pack", "--quiet", "--force", "--content-digests", &src, &image][..], options].concat());
        for threads in ["1", "5"] {
            let told = json(&stdout(&["extract", "--quiet", "--json", "--threads", threads, &image, &dir]));
            assert_eq!(told["digested_bytes"], told["bytes"], "{told}");
            stdout(&["diff", &dir, &src]);
            fs::remove_dir_all(&dir).unwrap();
        }
        let told = json(&stdout(&["export", "--quiet", "--json", "--force", &image, &scratch.path("out.tar")]));
        assert_eq!(told["digested_bytes"], told["bytes"], "{told}");
    }
    let mut bytes = fs::read(&image).unwrap();
    let part = &text(4, 900_000)[600_000..600_064];
    let at = bytes.windows(64).position(|window| window == part).expect("stored as it is");
    bytes[at] ^= 1;
    fs::write(&image, bytes).unwrap();
    for threads in ["1", "5"] {
        fails(&["extract", "--quiet", "--threads", threads, &image, &dir], 1, "large");
        assert!(!Path::new(&dir).join("large").exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}

const FSVERITY: [&str; 2] = ["fsverity-sha256", "fsverity-sha512"];

/// Returns the digest that an image stores for a file.
fn stored(image: &str, path: &str) -> String {
    json(&stdout(&["stat", "--json", image, path]))["content_digest"].as_str().unwrap_or_default().to_owned()
}

/// Checks that the digests of an image are those that `kiln digest` computes of the files.
fn has_fsverity(image: &str, src: &str, hash: &str) {
    is_whole(image);
    for name in ["big", "small", "late"] {
        let (algorithm, file) = (hash.strip_prefix("fsverity-").unwrap(), format!("{src}/{name}"));
        let told = json(&stdout(&["digest", "--json", "--algorithm", algorithm, &file]));
        let expected = format!("{hash}:{}", told["digests"][0]["digest"].as_str().unwrap());
        assert_eq!(stored(image, name), expected, "{name}");
        let shown = String::from_utf8(stdout(&["stat", image, name])).unwrap();
        assert!(shown.contains(&format!("Digest: {expected}\n")), "{shown}");
    }
}

#[test]
fn fsverity_digests_are_stored_kept_and_compared() {
    for hash in FSVERITY {
        let option = format!("--content-digests={hash}");
        for more in [&[][..], &CHUNKS, &["--kernel", "6.18"]] {
            let scratch = rotten(&[&[&*option], more].concat());
            let [src, good, rotten, new, dir] = ["src", "good", "rotten", "new", "dir"].map(|name| scratch.path(name));
            has_fsverity(&good, &src, hash);
            is_found(&rotten);
            let damage = format!("the fs-verity digest ({}) of the contents is ", hash[9..].replace("sha", "SHA-"));
            fails(&["extract", &rotten, &dir], 1, &damage);
            fails(&["cat", &rotten, "big"], 1, &damage);
            // Images made of images have the same digests, without an option.
            for args in [&["pack", "--quiet", &good, &new][..], &["relayout", "--quiet", &good, &new]] {
                stdout(args);
                has_fsverity(&new, &src, hash);
                fs::remove_file(&new).unwrap();
            }
            stdout(&["pack", "--quiet", "--base", &rotten, &src, &new]);
            if more != CHUNKS {
                // Reused as it is, with the digest that tells of the damage.
                is_found(&new);
            }
            // Updates keep the style for what is new.
            write(Path::new(&src).join("late"), "newer still", OLD + 19);
            stdout(&["update", "--quiet", &good, &src]);
            has_fsverity(&good, &src, hash);
        }
    }
}

#[test]
fn digests_of_another_function_are_computed_anew() {
    let scratch = rotten(&["--content-digests"]);
    let [src, good, rotten, new] = ["src", "good", "rotten", "new"].map(|name| scratch.path(name));
    for hash in FSVERITY {
        let option = format!("--content-digests={hash}");
        stdout(&["pack", "--quiet", &option, &good, &new]);
        has_fsverity(&new, &src, hash);
        fs::remove_file(&new).unwrap();
        stdout(&["pack", "--quiet", &option, "--base", &good, &src, &new]);
        has_fsverity(&new, &src, hash);
        fs::remove_file(&new).unwrap();
        // Contents that differ from the digest they had never get a new one.
        fails(&["pack", "--quiet", &option, &rotten, &new], 1, "big: damaged in ");
        fails(&["pack", "--quiet", &option, "--base", &rotten, &rotten, &new], 1, "big: damaged in ");
        for base in [&[][..], &["--base", &rotten]] {
            let pack = [&["pack", "--quiet", "--keep-going", &option], base, &[&rotten, &new]].concat();
            run(&pack);
            assert!(stored(&new, "big").starts_with("sha256:"), "{pack:?}");
            assert!(stored(&new, "small").starts_with(hash), "{pack:?}");
            is_found(&new);
            fs::remove_file(&new).unwrap();
        }
        // An update sees that only the digests are to change, and the next one that nothing is.
        stdout(&["update", "--quiet", &option, &good, &src]);
        has_fsverity(&good, &src, hash);
        let before = fs::read(&good).unwrap();
        stdout(&["update", "--quiet", &option, &good, &src]);
        assert_eq!(fs::read(&good).unwrap(), before);
        stdout(&["update", "--quiet", &good, &src]);
        assert_eq!(fs::read(&good).unwrap(), before);
    }
    stdout(&["update", "--quiet", "--content-digests", &good, &src]);
    assert!(stored(&good, "big").starts_with("sha256:"));
    fails(&["pack", "--quiet", "--content-digests=sha1", &src, &new], 2, "fsverity-sha512");
}

/// Estimates read first bytes of files, and compare none of them.
#[test]
fn estimates_of_images_with_digests_tell_of_no_damage() {
    let scratch = Scratch::new();
    let [src, image] = ["src", "image"].map(|name| scratch.path(name));
    fs::create_dir(&src).unwrap();
    // More than what is packed for an estimate.
    for at in 0..34 {
        write(Path::new(&src).join(at.to_string()), text(at, (1 << 20) + at as usize), OLD);
    }
    stdout(&["pack", "--quiet", "--preset", "fast", "--content-digests", &src, &image]);
    let estimate = ["pack", "--estimate", "--json", "-z", "zstd,9", "--dedupe", "off", &image];
    let told = json(&stdout(&estimate));
    let read = number(&told["estimates"][0], "sampled_bytes");
    assert!(read < number(&told["estimates"][0], "text_bytes"), "{told}");
}
