//! Ends of tar archives: every command that reads them stops at their end marks.

use crate::common::{Scratch, fails, json, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

const NOTE: &str = "bytes after the end mark, from byte 10240 on";

/// Makes an archive of 10240 bytes or more from a directory with these files.
pub fn tar(scratch: &Scratch, name: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let root = scratch.path(name);
    fs::create_dir_all(&root).unwrap();
    files.iter().for_each(|(path, text)| fs::write(format!("{root}/{path}"), text).unwrap());
    let mut archive = stdout(&["convert", "--to", "tar", &root, "-"]);
    archive.resize(archive.len().next_multiple_of(10240), 0);
    archive
}

/// Returns the result of `cat 1.tar 2.tar`; the second archive hides a file and has another `f`.
fn hiding(scratch: &Scratch) -> Vec<u8> {
    let first = tar(scratch, "first", &[("f", "one")]);
    assert_eq!(first.len(), 10240);
    [first, tar(scratch, "second", &[("f", "two"), ("hidden", "x")])].concat()
}

fn listed(image: &str) -> String {
    String::from_utf8(stdout(&["ls", image])).unwrap()
}

#[test]
fn commands_stop_at_the_end_mark_and_tell() {
    let scratch = Scratch::new();
    let (archive, image) = (scratch.path("c.tar"), scratch.path("c.erofs"));
    fs::write(&archive, hiding(&scratch)).unwrap();
    for args in [&["pack", "-q"][..], &["pack", "--from", "tar"], &["convert"], &["convert", "-q"]] {
        let output = run(&[args, &["--force", &archive, &image]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("note: {archive}: ignored 10240 {NOTE}")), "{args:?}: {said}");
        assert_eq!((listed(&image).trim(), &stdout(&["cat", &image, "f"])[..]), ("f", &b"one"[..]), "{args:?}");
        // Nothing differs, and the same note is printed.
        let output = run(&["diff", &archive, &image]);
        assert_eq!((output.status.code(), stderr(&output).contains(NOTE)), (Some(0), true), "{}", stderr(&output));
        let output = run(&[args, &["--concatenated", "--force", &archive, &image]].concat());
        assert_eq!((output.status.code(), stderr(&output).contains("note:")), (Some(0), false), "{}", stderr(&output));
        assert_eq!((listed(&image).trim(), &stdout(&["cat", &image, "f"])[..]), ("f\nhidden", &b"two"[..]), "{args:?}");
        assert_eq!(run(&["diff", "--concatenated", &archive, &image]).status.code(), Some(0));
    }
    let told = json(&stdout(&["pack", "--json", "--force", &archive, &image]));
    assert_eq!(crate::json::undocumented(&told), Vec::<String>::new());
    assert_eq!((&told["notes"][0]["path"], told["notes"].as_array().unwrap().len()), (&Value::from(&*archive), 1));
    assert!(told["notes"][0]["note"].as_str().unwrap().ends_with(NOTE), "{told}");
    let output = run(&["update", "-q", &image, "--add", &archive]);
    assert!(output.status.success() && stderr(&output).contains(NOTE), "{}", stderr(&output));
    // A stream, whose writer notices nothing.
    let args = ["pack", "--force", "-", &image];
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(args)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let whole = [hiding(&scratch), vec![0; 1 << 20]].concat();
    child.stdin.take().unwrap().write_all(&whole).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && stderr(&output).contains(NOTE), "{}", stderr(&output));
    assert_eq!(listed(&image).trim(), "f");
}

/// Layers and drop-in names ignore the option.
#[test]
fn layers_and_mkfs_never_read_on() {
    let scratch = Scratch::new();
    let layer = hiding(&scratch);
    let layout = crate::oci::layout_of(&scratch, &layer);
    let image = scratch.path("image");
    let output = run(&["pack", "--concatenated", "--from", "oci", &layout, &image]);
    assert!(output.status.success() && stderr(&output).contains(NOTE), "{}", stderr(&output));
    assert_eq!((listed(&image).trim(), &stdout(&["cat", &image, "f"])[..]), ("f", &b"one"[..]));
    let output = run(&["pack", "--concatenated", "--layers", &layout, &scratch.path("layers")]);
    assert!(output.status.success() && stderr(&output).contains(NOTE), "{}", stderr(&output));
    let output = run(&["oci", "convert", &layout, &scratch.path("converted")]);
    assert!(output.status.success() && stderr(&output).contains(NOTE), "{}", stderr(&output));
    let (mkfs, archive) = (scratch.path("mkfs.erofs"), scratch.path("c.tar"));
    symlink(env!("CARGO_BIN_EXE_kiln"), &mkfs).unwrap();
    fs::write(&archive, &layer).unwrap();
    for mode in ["f", "i", "headerball"] {
        let archive = match mode {
            // Headers without contents.
            "headerball" => {
                let (headers, mtime) = (scratch.path("headers"), ("mtime", "1"));
                let [first, second] = ["f", "hidden"].map(|name| crate::attributes::tar(&[(name, &[mtime])]));
                fs::write(&headers, [first, vec![0; 8192], second].concat()).unwrap();
                headers
            }
            _ => archive.clone(),
        };
        let output = Command::new(&mkfs).args([&format!("--tar={mode}"), &image, &archive]).output().unwrap();
        let said = stderr(&output);
        assert!(
            output.status.success() && said.contains("<W> erofs: ") && said.contains("after the end mark"),
            "{said}"
        );
        assert_eq!(listed(&image).trim(), "f", "{mode}");
    }
}

#[test]
fn archives_that_are_cut_are_refused() {
    let scratch = Scratch::new();
    let (archive, image) = (scratch.path("t.tar"), scratch.path("t.erofs"));
    let whole = tar(&scratch, "tree", &[("a", &"x".repeat(700)), ("b", "b\n")]);
    let data = whole.windows(700).position(|bytes| bytes.iter().all(|&byte| byte == b'x')).unwrap();
    for len in [data + 700, data + 712, data + 1023, data + 1100] {
        fs::write(&archive, &whole[..len]).unwrap();
        fails(&["pack", "-q", &archive, &image], 1, "the archive ends within a");
    }
    let output = run(&["pack", "-q", "--keep-going", &archive, &image]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    // Where a member ends, only a missing end mark shows the cut.
    fs::write(&archive, &whole[..data + 1024]).unwrap();
    let output = run(&["pack", "-q", "--force", &archive, &image]);
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("it has no end mark"), "{said}");
    assert_eq!(listed(&image).trim(), "a");
}
