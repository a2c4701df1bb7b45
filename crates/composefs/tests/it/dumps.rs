//! Dumps: what is taken, what is refused and with which words, what is written.

use super::common::{ROOT, read, refusal, write};
use kiln_composefs::dump;
use kiln_composefs::image::Version;
use kiln_composefs::tree::{FileData, NodeIdx};
use kiln_digest::Digest;
use kiln_tests::rng::Rng;

/// Lines after the root, and the error of the whole dump.
const REFUSED: &[(&str, &str)] = &[
    ("\n", "line 2, column 1: an empty line"),
    ("a 0 100644 1 0 0 0 0.0 - - -", "line 2, column 1: the path has no leading slash"),
    ("/d/ 0 40755 1 0 0 0 0.0 - - -", "line 2, column 1: the path has a trailing slash"),
    ("//a 0 100644 1 0 0 0 0.0 - - -", "line 2, column 1: the path has an empty name"),
    ("/a// 0 100644 1 0 0 0 0.0 - - -", "line 2, column 1: the path has an empty name"),
    ("/. 0 100644 1 0 0 0 0.0 - - -", "line 2, column 1: the path has `.` or `..`"),
    ("/../a 0 100644 1 0 0 0 0.0 - - -", "line 2, column 1: the path has `.` or `..`"),
    ("/d/a 0 100644 1 0 0 0 0.0 - - -", "line 2, column 1: no line before this one has the parent directory"),
    (
        "/d 0 100644 1 0 0 0 0.0 - - -\n/d/a 0 100644 1 0 0 0 0.0 - - -",
        "line 3, column 1: no line before this one has the parent directory",
    ),
    (
        "/a 0 100644 1 0 0 0 0.0 - - -\n/b 0 100644 1 0 0 0 0.0 - - -\n/a 0 40755 1 0 0 0 0.0 - - -",
        "line 4, column 1: the path is there twice",
    ),
    ("/ 0 40755 2 0 0 0 0.0 - - -", "line 2, column 1: a second line for the root"),
    ("/a\0 0 100644 1 0 0 0 0.0 - - -", "line 2, column 3: a zero byte"),
    (
        "/a\\x00 0 100644 1 0 0 0 0.0 - - -",
        "line 2, column 3: `\\x00` in a field that cannot have it: only contents and values of attributes can",
    ),
    (
        "/a 1 100644 1 0 0 0 0.0 aa\\x00 - -",
        "line 2, column 27: `\\x00` in a field that cannot have it: only contents and values of attributes can",
    ),
    (
        "/a 0 100644 1 0 0 0 0.0 - - - user.\\x00=v",
        "line 2, column 36: `\\x00` in a field that cannot have it: only contents and values of attributes can",
    ),
    ("/\\q 0 100644 1 0 0 0 0.0 - - -", "line 2, column 2: not an escape: `\\xHH`, `\\\\`, `\\n`, `\\r` and `\\t` are"),
    (
        "/a\\x4 0 100644 1 0 0 0 0.0 - - -",
        "line 2, column 3: not an escape: `\\xHH`, `\\\\`, `\\n`, `\\r` and `\\t` are",
    ),
    ("/a +1 100644 1 0 0 0 0.0 - - -", "line 2, column 4: the size is no number, or too large"),
    ("/a  100644 1 0 0 0 0.0 - - -", "line 2, column 4: the size is no number, or too large"),
    ("/a 18446744073709551616 100644 1 0 0 0 0.0 - - -", "line 2, column 4: the size is no number, or too large"),
    ("/a 0 100644 x 0 0 0 0.0 - - -", "line 2, column 13: the link count is no number, or too large"),
    ("/a 0 100644 1 4294967296 0 0 0.0 - - -", "line 2, column 15: the owner is no number, or too large"),
    ("/a 0 100644 1 5 x 0 0.0 - - -", "line 2, column 17: the group is no number, or too large"),
    ("/a 0 20644 1 5 0 x 0.0 - - -", "line 2, column 18: the device number is no number, or too large"),
    ("/a 0 20644 1 0 0 4294967296 0.0 - - -", "line 2, column 18: the device number is no number, or too large"),
    ("/a 0 644 1 0 0 0 0.0 - - -", "line 2, column 6: the mode is not that of a file: an octal number such as 100644"),
    (
        "/a 0 1100644 1 0 0 0 0.0 - - -",
        "line 2, column 6: the mode is not that of a file: an octal number such as 100644",
    ),
    (
        "/a 0 100684 1 0 0 0 0.0 - - -",
        "line 2, column 6: the mode is not that of a file: an octal number such as 100644",
    ),
    ("/a 0 100644 1 0 0 0 -1.0 - - -", "line 2, column 21: the time is not SECONDS.NANOSECONDS, from 1970 on"),
    ("/a 0 100644 1 0 0 0 1 - - -", "line 2, column 21: the time is not SECONDS.NANOSECONDS, from 1970 on"),
    ("/a 0 100644 1 0 0 0 0.1000000000 - - -", "line 2, column 21: the time is not SECONDS.NANOSECONDS, from 1970 on"),
    ("/a 1 100644 1 0 0 0 0.0 aa/b - abc", "line 2, column 32: the digest has neither 64 hexadecimal digits nor 128"),
    ("/a 4 100644 1 0 0 0 0.0 - abc -", "line 2, column 4: 3 bytes of contents, but a size of 4"),
    (
        "/a 9007199254740993 100644 1 0 0 0 0.0 - - -",
        "line 2, column 4: a file of 9007199254740993 bytes: images hold 9007199254740992 at most",
    ),
    ("/a 0 120777 1 0 0 0 0.0 - - -", "line 2, column 25: the symbolic link has no target"),
    ("/a 0 @100644 1 0 0 0 0.0 - - -", "line 2, column 26: the hard link has no target"),
    ("/a 0 @100644 1 0 0 0 0.0 /b - -", "line 2, column 26: the target of the hard link does not exist"),
    ("/a 0 @100644 1 0 0 0 0.0 / - -", "line 2, column 26: a hard link to a directory"),
    ("/a 0 @100644 1 0 0 0 0.0 /a - -", "line 2, column 26: the hard link leads back to itself"),
    (
        "/a 0 @100644 1 0 0 0 0.0 /b - -\n/b 0 @100644 1 0 0 0 0.0 /a - -",
        "line 2, column 26: the hard link leads back to itself",
    ),
    ("/w 0 20644 1 0 0 0 0.0 - - -\n/a 0 @20644 1 0 0 0 0.0 /w - -", "line 3, column 25: a hard link to a whiteout"),
    (
        "/a 0 100644 1 0 0 0 0.0 - - - =v",
        "line 2, column 31: an attribute's key of 0 bytes: it has 1 to 255, and no zero byte",
    ),
    ("/a 0 100644 1 0 0 0 0.0 - - - user.a", "line 2, column 31: the attribute has no `=`"),
    ("/a 0 100644 1 0 0 0 0.0 - - -  user.a=v", "line 2, column 31: the attribute has no `=`"),
    ("/a 0 100644 1 0 0 0 0.0 - -", "line 2, column 28: 10 fields: a line has 11, and attributes"),
    ("/a", "line 2, column 3: 1 fields: a line has 11, and attributes"),
];

#[test]
fn refusals_have_a_place_and_a_reason() {
    for (lines, expected) in REFUSED {
        assert_eq!(refusal(format!("{ROOT}{lines}\n").as_bytes()), *expected, "{lines}");
    }
}

#[test]
fn dumps_begin_with_the_root() {
    for (text, expected) in [
        ("", "line 1, column 1: the dump is empty"),
        ("/a 0 40755 2 0 0 0 0.0 - - -\n", "line 1, column 1: the first line must be the root, `/`"),
        ("/ 0 100755 2 0 0 0 0.0 - - -\n", "line 1, column 5: the root is no directory"),
        ("/ 0 @40755 2 0 0 0 0.0 /a - -\n", "line 1, column 5: the root is no directory"),
    ] {
        assert_eq!(refusal(text.as_bytes()), expected);
    }
}

/// The longest values are taken, and longer ones are refused.
#[test]
fn lengths_have_limits() {
    let x = |len: usize| "x".repeat(len);
    let key = |len: usize| format!("/a 0 100644 1 0 0 0 0.0 - - - {}=v", x(len));
    let values = |len: usize| format!("/a 0 100644 1 0 0 0 0.0 - - - user.a={} b={}", x(16000), x(len));
    let deep = |depth: usize| -> String {
        let dirs =
            (1..=depth).map(|depth| format!("{} 0 40755 1 0 0 0 0.0 - - -\n", format!("/{}", x(255)).repeat(depth)));
        dirs.collect()
    };
    for (line, longest, reason) in [
        (
            &(|len| format!("/{} 0 100644 1 0 0 0 0.0 - - -", x(len))) as &dyn Fn(usize) -> String,
            255,
            "a name of 256 bytes",
        ),
        (&|len| format!("/a {len} 100644 1 0 0 0 0.0 - {} -", x(len)), 5000, "inline contents of 5001 bytes"),
        (&|len| format!("/a 1 120777 1 0 0 0 0.0 {} - -", x(len)), 4095, "a symbolic link of 4096 bytes"),
        (&|len| format!("/a 1 100644 1 0 0 0 0.0 {} - -", x(len)), 4095, "a payload of 4096 bytes"),
        (&|len| format!("/a 0 100644 1 0 0 0 0.0 {} - -", x(len)), 4095, "a payload of 4096 bytes"),
        (&key, 255, "an attribute's key of 256 bytes"),
        (&values, 32767 - 12 - (7 + 6 + 16000) - (7 + 1), "too many attributes"),
        (&deep, 256, "the path is longer than 65536 bytes"),
    ] {
        read(format!("{ROOT}{}", line(longest)).as_bytes());
        let error = refusal(format!("{ROOT}{}", line(longest + 1)).as_bytes());
        assert!(error.contains(reason), "{error}");
    }
    // Escapes count here.
    let text = |len: usize| format!("{ROOT}/a 0 100644 1 0 0 0 0.0 - - - user.abc={}", "\\x61".repeat(len));
    read(text(16381).as_bytes());
    let error = "line 2, column 31: the attributes take more than 65535 bytes of the line";
    assert_eq!(refusal(text(16382).as_bytes()), error);
    let line = vec![b'x'; (1 << 20) + 1];
    assert_eq!(refusal(&line), "line 1, column 1048577: the line is longer than 1048576 bytes");
}

#[test]
fn odd_dumps_are_taken_as_composefs_takes_them() {
    let dump_of = |lines: &str| {
        let text = write(&read(format!("{ROOT}{lines}").as_bytes()));
        String::from_utf8(text).unwrap().strip_prefix(ROOT).unwrap().to_owned()
    };
    let digest = "ab".repeat(32);
    for (lines, expected) in [
        // The last line needs no end, and a line may end with a space.
        ("/a 0 100644 1 0 0 0 0.0 - - -", "/a 0 100644 1 0 0 0 0.0 - - -\n"),
        ("/a 0 100644 1 0 0 0 0.0 - - - \n", "/a 0 100644 1 0 0 0 0.0 - - -\n"),
        // What has no meaning is dropped.
        ("/a 0 100644 1 0 0 7 0.0 x - -\n", "/a 0 100644 1 0 0 0 0.0 - - -\n"),
        (&format!("/a 1 100644 1 0 0 0 0.0 x y {digest}\n"), "/a 1 100644 1 0 0 0 0.0 - y -\n"),
        ("/a 9 120777 1 0 0 0 0.0 x - -\n", "/a 1 120777 1 0 0 0 0.0 x - -\n"),
        // A digest without a path, a path without a digest, neither.
        (&format!("/a 1 100644 1 0 0 0 0.0 - - {digest}\n"), &format!("/a 1 100644 1 0 0 0 0.0 - - {digest}\n")),
        ("/a 1 100644 1 0 0 0 0.0 //x - -\n", "/a 1 100644 1 0 0 0 0.0 //x - -\n"),
        ("/a 1 100644 1 0 0 0 0.0 - - -\n", "/a 1 100644 1 0 0 0 0.0 - - -\n"),
        // The last of two values wins; keys are sorted.
        ("/a 0 100644 1 0 0 0 0.0 - - - b=1 a==- b=\n", "/a 0 100644 1 0 0 0 0.0 - - - a=\\x3d- b=\n"),
        // Escapes where there must be some, and nowhere else.
        (
            "/\\x61\\x20\\xff=\\\\ 1 120777 1 0 0 0 0.0 \\x2d - -\n",
            "/a\\x20\\xff=\\\\ 1 120777 1 0 0 0 0.0 \\x2d - -\n",
        ),
        // Links before targets and to links; the first path has the inode.
        (
            "/b 0 @0 - - - - - /c - -\n/c 0 @0 - - - - - /d - -\n/d 0 100644 3 0 0 0 0.0 - - - user.a=b\n",
            "/b 0 100644 3 0 0 0 0.0 - - - user.a=b\n/c 0 @100644 3 0 0 0 0.0 /b - - user.a=b\n\
             /d 0 @100644 3 0 0 0 0.0 /b - - user.a=b\n",
        ),
    ] {
        assert_eq!(dump_of(lines), expected, "{lines}");
    }
}

#[test]
fn bytes_need_not_be_text() {
    let text = [ROOT.as_bytes(), b"/\xe9 2 100644 1 0 0 0 0.0 - \xff\\x00 -\n"].concat();
    let tree = read(&text);
    let file = tree.find(b"/\xe9").unwrap();
    assert_eq!(tree.data(file), FileData::Inline(b"\xff\0"));
    assert_eq!(tree.path(file), b"/\xe9");
    assert!(write(&tree).ends_with(b"/\\xe9 2 100644 1 0 0 0 0.0 - \\xff\\x00 -\n"));
}

#[test]
fn either_digest_is_read() {
    for len in [32, 64] {
        let text = format!("{ROOT}/a 1 100644 1 0 0 0 0.0 - - {}\n", "Ab".repeat(len));
        let tree = read(text.as_bytes());
        let FileData::External { digest, .. } = tree.data(tree.entries(NodeIdx::ROOT).next().unwrap()) else {
            panic!("no external file")
        };
        assert_eq!(digest, Digest::from_bytes(&vec![0xAB; len]));
    }
}

#[test]
fn doubtful_lines_are_told() {
    let digest = "ab".repeat(32);
    let lines = format!(
        "/a 1 100644 2 0 0 0 0.0 ab/{rest} - {digest}\n/b 1 100644 1 0 0 0 0.0 ab/x - {digest}\n\
         /c 0 @100644 1 0 0 0 0.0 /b - -\n/d 0 40755 9 0 0 0 0.0 - - -\n/e 0 100644 1 0 0 0 0.0 x - {digest}\n",
        rest = &digest[2..]
    );
    let mut warnings = Vec::new();
    dump::read(format!("{ROOT}{lines}").as_bytes(), &mut |warning| warnings.push(warning.to_string())).unwrap();
    assert_eq!(
        warnings,
        [
            "line 3: the payload is not the digest's path in a store",
            "line 2: a link count of 2, but 1 names",
            "line 3: a link count of 1, but 2 names",
        ]
    );
}

/// Damaged dumps are taken or refused, and what is taken comes back.
#[test]
fn damaged_dumps_are_no_panic() {
    let mut taken = 0;
    for seed in 0..400 {
        let mut text = super::generator::dump(seed % 40).into_bytes();
        let mut rng = Rng::new(1000 + seed);
        for _ in 0..=rng.below(3) {
            let at = rng.below(text.len() as u64) as usize;
            let end = (at + rng.below(30) as usize).min(text.len());
            match rng.below(4) {
                0 => text[at] = *rng.pick(b" -/\\@.=0\n\0x\xff"),
                1 => drop(text.drain(at..end)),
                2 => text.insert(at, *rng.pick(b" -/\\@.=9\n\0x\xff")),
                _ => {
                    let copy = text[at..end].to_vec();
                    let to = rng.below(text.len() as u64) as usize;
                    text.splice(to..to, copy);
                }
            }
        }
        match dump::read(&text[..], &mut |_| {}) {
            Ok(tree) => {
                let canonical = write(&tree);
                assert_eq!(write(&read(&canonical)), canonical, "seed {seed}");
                super::common::image(&tree, Version::V1);
                taken += 1;
            }
            Err(error) => assert!(error.to_string().starts_with("line "), "seed {seed}: {error}"),
        }
    }
    assert!((20..380).contains(&taken), "{taken} of 400 dumps were taken");
}
