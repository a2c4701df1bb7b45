//! Lengths and digests of the outputs of command lines: images over sources, options, bases and drop-in names.
//! `command_lines.txt` lists them. A command line that changes its spelling keeps its digest. `KILN_BLESS=1 cargo
//! test -p kiln-command --test it command_lines` writes the table again.

use crate::common::{Scratch, kiln, trees};
use crate::sizes;
use kiln_tests::reviewed::{assert_reviewed, line};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Command lines in the order in which they run, each in the directory of the trees. The first word
/// is the file whose digest counts.
const LINES: &str = "tests/it/command_lines/lines.txt";

/// Makes the trees `src` and `next`, which differ a little, with fixed times, and copies of the images of other
/// builders.
fn make(dir: &Path) {
    for name in ["src", "next"] {
        let tree = dir.join(name);
        sizes::make(&tree);
        if name == "next" {
            fs::write(tree.join("d0/new"), "a new file\n".repeat(999)).unwrap();
            fs::remove_file(tree.join("d1/small file 7")).unwrap();
            let changed = tree.join("d1/sub/text-7");
            let mut text = fs::read(&changed).unwrap();
            text.splice(500_000..500_010, *b"an insertion of some length");
            fs::write(&changed, text).unwrap();
        }
        for file in trees::files(&tree) {
            let is_changed = name == "next" && (file.ends_with("d0/new") || file.ends_with("sub/text-7"));
            trees::set_time(&file, trees::OLD + u64::from(is_changed));
        }
        let link =
            std::process::Command::new("touch").args(["-h", "-d", "@1600000000"]).arg(tree.join("link")).status();
        assert!(link.unwrap().success());
        for sub in ["d0/sub", "d1/sub", "d2/sub", "d0", "d1", "d2", ""] {
            trees::set_time(&tree.join(sub), trees::OLD);
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for image in
        ["source/tests/squashfs/zstd.squashfs", "source/tests/cramfs/little.cramfs", "read/tests/golden/lz4-frag.erofs"]
    {
        fs::copy(crates.join(image), dir.join(Path::new(image).file_name().unwrap())).unwrap();
    }
    fs::write(dir.join("hot"), "d1/sub/text-6\nd0/sub/both-3\nd1/small file 44\n").unwrap();
    trees::set_time(&dir.join("hot"), trees::OLD);
    fs::write(dir.join("pseudo"), "made l hot\nd0 m 750 3 4\n/d0/null c 666 0 0 1 3\n").unwrap();
    fs::write(dir.join("devices"), "/d0/zero c 666 0 0 1 5 - - -\n").unwrap();
    fs::write(dir.join("contexts"), "/.* system_u:object_r:etc_t:s0\n/d1/.* -- system_u:object_r:bin_t:s0\n").unwrap();
    fs::write(dir.join("excluded"), "*.tmp\nnoise-*\n").unwrap();
}

#[test]
fn images_of_command_lines_are_those_of_the_table() {
    let scratch = Scratch::new();
    let dir = scratch.path("");
    let dir = Path::new(&dir);
    make(dir);
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lines = fs::read_to_string(crate_dir.join(LINES)).unwrap();
    let (mut table, mut failures) = (String::new(), Vec::new());
    for words in lines.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (made, command) = words.split_once(": ").unwrap();
        let mut args = command.split_whitespace().map(|word| word.replace("OUT", made));
        let name = args.next().unwrap();
        let mut run = kiln();
        // The record of an update contains its time.
        run.arg0(&name).args(args).current_dir(dir).env("SOURCE_DATE_EPOCH", "1700000000");
        let output = run.output().unwrap();
        match fs::read(dir.join(made)) {
            Ok(bytes) if matches!(output.status.code(), Some(0 | 3)) => table += &line(&bytes, command),
            _ => failures.push(format!("{words}\n{}", String::from_utf8_lossy(&output.stderr))),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_reviewed(&table, &crate_dir.join("tests/command_lines.txt"));
}
