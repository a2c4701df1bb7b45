//! `kiln run`: what its command sees, how both end, and what is left.

use crate::common::{Scratch, fails, kiln, names, run, skip, stderr, stdout, text};
use crate::mount::{as_nobody, has_fuse};
use kiln_tests::rng::Rng;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Directories of programs that anybody may look into.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Makes a tree that everybody may read, and its image.
fn image(scratch: &Scratch) -> String {
    let (tree, image) = (scratch.path("tree"), scratch.path("image"));
    fs::create_dir_all(format!("{tree}/dir/empty")).unwrap();
    fs::write(format!("{tree}/file"), "contents").unwrap();
    fs::write(format!("{tree}/dir/long"), text(1, 500_000)).unwrap();
    stdout(&["pack", "--quiet", &tree, &image]);
    fs::create_dir(scratch.path("at")).unwrap();
    for path in [scratch.path(""), scratch.path("at"), image.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    image
}

/// Runs `kiln run` as root by the kernel's driver and by FUSE, and as nobody. Returns each output with a name.
fn everywhere(args: &[&str]) -> Vec<(&'static str, Output)> {
    let mut outputs = Vec::new();
    if has_fuse() {
        outputs.push(("root", run(&[&["run"], args].concat())));
        outputs.push(("FUSE", run(&[&["run", "--via=fuse"], args].concat())));
        if has_user_namespaces() {
            let mut kiln = as_nobody(env!("CARGO_BIN_EXE_kiln"));
            let output = kiln.arg("run").args(args).env("PATH", PATH).stdin(Stdio::null()).output();
            outputs.push(("nobody", output.unwrap()));
        } else {
            skip("kiln run as nobody: an ordinary user may have no namespaces");
        }
    } else {
        skip("kiln run needs root, for its tests, and /dev/fuse");
    }
    outputs
}

fn has_user_namespaces() -> bool {
    let output = as_nobody("unshare").args(["--user", "--mount", "true"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// Returns the mounts at or below a path, in any namespace, and the processes that name it in their arguments.
fn left(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for process in names("/proc").iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        if *process == std::process::id().to_string() {
            continue;
        }
        let read = |name: &str| fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
        for (name, bytes) in [("mountinfo", read("mountinfo")), ("cmdline", read("cmdline"))] {
            let told = String::from_utf8_lossy(&bytes).replace('\0', " ");
            found.extend(
                told.lines().filter(|line| line.contains(path)).map(|line| format!("{process} {name}: {line}")),
            );
        }
    }
    found
}

/// Returns true once nothing is left, which takes a moment.
fn is_nothing_left(path: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left(path).is_empty() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn the_command_sees_the_image_and_nobody_else_does() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let at = scratch.path("at");
    let script = "cat \"$1/file\" && sha256sum < \"$1/dir/long\" && cd \"$1\" && ls -d dir/*";
    let sum = Command::new("sha256sum").stdin(fs::File::open(scratch.path("tree/dir/long")).unwrap()).output().unwrap();
    let expected = format!("contents{}dir/empty\ndir/long\n", String::from_utf8(sum.stdout).unwrap());
    for (who, output) in everywhere(&["--at", &at, &image, "--", "sh", "-c", script, "sh", &at]) {
        assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{who}");
        assert_eq!(names(&at), [""; 0], "{who}");
        assert!(is_nothing_left(&at), "{who}: {:?}", left(&at));
    }
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let at = scratch.path("at");
    let shell = |script: &str| everywhere(&["--at", &at, &image, "--", "sh", "-c", script]);
    let codes =
        [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("(sleep 100 &); exit 3", 3)];
    for (script, code) in codes {
        for (who, output) in shell(script) {
            assert_eq!(output.status.code(), Some(code), "{who}: {script}: {}", stderr(&output));
        }
    }
    let script = scratch.path("script");
    fs::write(&script, "#!/no/such/python3 -u\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let failing = [
        ("no-such-program", 127, "no-such-program: cannot be run: No such file"),
        ("/etc/passwd", 126, "cannot be run: Permission denied"),
        (&script, 127, "cannot be run: its interpreter /no/such/python3 is missing"),
    ];
    for (command, code, words) in failing {
        for (who, output) in everywhere(&["--at", &at, &image, "--", command]) {
            assert_eq!(output.status.code(), Some(code), "{who}: {}", stderr(&output));
            assert!(stderr(&output).contains(words), "{who}: {}", stderr(&output));
        }
    }
    assert!(is_nothing_left(&at), "{:?}", left(&at));
}

#[test]
fn what_cannot_be_mounted_is_told_once() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let at = scratch.path("at");
    fs::write(scratch.path("damaged"), "no image").unwrap();
    let [missing, damaged] = ["missing", "damaged"].map(|name| scratch.path(name));
    for broken in [&missing, &damaged] {
        for (who, output) in everywhere(&["--at", &at, broken, "--", "echo", "ran"]) {
            assert_eq!(output.status.code(), Some(1), "{who}: {}", stderr(&output));
            let told = stderr(&output);
            assert!(told.lines().count() == 1 && told.contains(broken.as_str()), "{who}: {told}");
            assert!(output.stdout.is_empty(), "{who}");
        }
    }
    if has_fuse() {
        fails(&["run", "--at", &missing, &image, "--", "true"], 1, "cannot mount there");
        fails(&["run", "--at", "/", &image, "--", "true"], 2, "--chroot");
        fails(&["run", "--at", &at, "--bind", &missing, &image, "--", "true"], 1, "cannot show it in the image");
        fails(&["run", "--at", &at, "--bind", "/etc:/nowhere", &image, "--", "true"], 2, "the image has no /nowhere");
    }
}

#[test]
fn an_image_can_be_written_to() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let at = scratch.path("at");
    let before = fs::read(&image).unwrap();
    let script = "echo more >>\"$1/file\" && rm -r \"$1/dir\" && mkdir \"$1/dir\" && echo new >\"$1/dir/new\" && \
                  cat \"$1/file\" \"$1/dir/new\" && ls \"$1/dir\"";
    let expected = "contentsmore\nnew\nnew\n";
    for (who, output) in everywhere(&["--at", &at, "--overlay", "tmpfs", &image, "--", "sh", "-c", script, "sh", &at]) {
        assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{who}");
    }
    assert!(fs::read(&image).unwrap() == before && names(&at).is_empty());
    if !has_fuse() {
        return;
    }
    // Changes that are kept are there at the next time.
    let changes = scratch.path("changes");
    let run =
        |script: &str| run(&["run", "--at", &at, "--overlay", &changes, &image, "--", "sh", "-c", script, "sh", &at]);
    let output = run("echo more >>\"$1/file\" && rm \"$1/dir/long\"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(Path::new(&changes).join("upper/file")).unwrap(), b"contentsmore\n");
    let output = run("cat \"$1/file\" && ls \"$1/dir\"");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "contentsmore\nempty\n", "{}", stderr(&output));
    assert!(is_nothing_left(&at), "{:?}", left(&at));
}

#[test]
fn changes_belong_to_one_image() {
    let scratch = Scratch::new();
    let image = image(&scratch);
    let [at, changes, moved, other] = ["at", "changes", "moved", "other"].map(|name| scratch.path(name));
    stdout(&["pack", "--quiet", &scratch.path("tree/dir"), &other]);
    if !has_fuse() {
        return skip("kiln run needs root, for its tests, and /dev/fuse");
    }
    let run = |image: &str, command: &[&str]| {
        run(&[&["run", "--at", &at, "--overlay", &changes, image, "--"][..], command].concat())
    };
    // A directory without changes is anybody's.
    for image in [&other, &image] {
        let output = run(image, &["true"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let new = format!("{at}/new");
    assert_eq!(run(&image, &["touch", &new]).status.code(), Some(0));
    let output = run(&other, &["ls", &new]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let record = format!("{changes}/image");
    assert!(
        stderr(&output).contains(&format!("another image than {other}: name another directory, or delete {record}"))
    );
    // The name of an image may change.
    fs::rename(&image, &moved).unwrap();
    assert_eq!(run(&moved, &["ls", &new]).status.code(), Some(0));
    fs::remove_file(record).unwrap();
    assert_eq!(run(&other, &["ls", &new]).status.code(), Some(0));
}

/// Copies `sh`, some programs, and all libraries that they need into a tree.
fn system_tree(tree: &str) {
    for program in ["/bin/sh", "/bin/cat", "/bin/ls", "/bin/mkdir"] {
        let told = Command::new("ldd").arg(program).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let libraries = told.split_whitespace().filter(|word| word.starts_with('/'));
        for path in libraries.chain([program]) {
            let copy = format!("{tree}{path}");
            fs::create_dir_all(Path::new(&copy).parent().unwrap()).unwrap();
            fs::copy(path, copy).unwrap();
        }
    }
}

#[test]
fn an_image_can_be_the_root() {
    let scratch = Scratch::new();
    let [tree, image, at] = ["tree", "image", "at"].map(|name| scratch.path(name));
    system_tree(&tree);
    for dir in ["proc", "sys", "dev", "tmp", "data", "etc"] {
        fs::create_dir_all(format!("{tree}/{dir}")).unwrap();
    }
    // A link that leads out of the image, for who follows it in the wrong root.
    std::os::unix::fs::symlink("/data", format!("{tree}/etc/link")).unwrap();
    stdout(&["pack", "--quiet", &tree, &image]);
    fs::create_dir_all(scratch.path("shown")).unwrap();
    fs::write(scratch.path("shown/file"), "shown").unwrap();
    fs::create_dir(&at).unwrap();
    for path in [scratch.path(""), at.clone(), scratch.path("shown")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let bind = format!("{}:/etc/link", scratch.path("shown"));
    let script =
        "ls / && cat /data/file && echo x >/tmp/x && cat /tmp/x && cat /proc/self/comm && pwd && echo >/dev/null";
    let args = ["--at", &at, "--chroot", "--bind", &bind, &image, "--", "/bin/sh", "-c", script];
    for (who, output) in everywhere(&args) {
        assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let listed = names(&tree).join("\n");
        assert_eq!(told, format!("{listed}\nshownx\ncat\n/\n"), "{who}");
    }
    let bind = format!("{}:/etc/link:ro", scratch.path("shown"));
    let script = "cat /data/file && ! echo x >/data/file";
    for (who, output) in everywhere(&["--at", &at, "--chroot", "--bind", &bind, &image, "--", "/bin/sh", "-c", script])
    {
        assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
        assert!(stderr(&output).contains("Read-only"), "{who}: {}", stderr(&output));
    }
    let bind = format!("{}:/new/place/file", scratch.path("shown/file"));
    let script = "cat /new/place/file && mkdir /made && pwd";
    let over = ["--at", &at, "--chroot", "--overlay=tmpfs", "--chdir=/etc", "--bind", &bind];
    for (who, output) in everywhere(&[&over[..], &[&image, "--", "/bin/sh", "-c", script]].concat()) {
        assert_eq!(String::from_utf8_lossy(&output.stdout), "shown/etc\n", "{who}: {}", stderr(&output));
    }
    assert!(is_nothing_left(&at), "{:?}", left(&at));
}

/// Starts a command that tells when it runs.
fn start(args: &[&str], ready: &str) -> Child {
    let child = kiln().arg("run").args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !Path::new(ready).exists() {
        assert!(Instant::now() < deadline, "the command does not start");
        sleep(Duration::from_millis(5));
    }
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn signals_reach_the_command() {
    if !has_fuse() {
        return skip("kiln run needs root, for its tests, and /dev/fuse");
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let [at, ready, caught] = ["at", "ready", "caught"].map(|name| scratch.path(name));
    // Signals that are ignored stay so, and a shell cannot trap them: those of a test in the background.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    let signals = [("TERM", 15), ("INT", 2), ("HUP", 1), ("USR1", 10)];
    for (name, _) in signals.into_iter().filter(|(_, number)| ignored >> (number - 1) & 1 == 0) {
        for more in [&["--via=fuse"][..], &["--via=fuse", "--share-pids"], &[]] {
            let script =
                format!("trap 'echo {name} >{caught}; exit 5' {name}; echo >{ready}; while :; do sleep 0.01; done");
            let args = [more, &["--at", &at, &image, "--", "sh", "-c", &script]].concat();
            let mut child = start(&args, &ready);
            signal(&child, &format!("-{name}"));
            assert_eq!(child.wait().unwrap().code(), Some(5), "{name} {more:?}");
            assert_eq!(fs::read_to_string(&caught).unwrap().trim(), name);
            fs::remove_file(&ready).unwrap();
            fs::remove_file(&caught).unwrap();
        }
    }
    assert!(is_nothing_left(&at), "{:?}", left(&at));
}

#[test]
fn nothing_is_left_of_a_run_that_is_killed() {
    if !has_fuse() {
        return skip("kiln run needs root, for its tests, and /dev/fuse");
    }
    let scratch = Scratch::new();
    let image = image(&scratch);
    let at = scratch.path("at");
    let mut rng = Rng::new(3);
    let rounds = kiln_tests::rounds("KILN_RUN_KILLS", 40, 1000);
    for round in 0..rounds as usize {
        // Processes that go on, and one that has left its group.
        let script = format!("(setsid sleep 1000.5 {at} &); sleep 1000.5 {at} & cat {at}/dir/long >/dev/null; wait");
        let more = [&["--via=fuse"][..], &[], &["--via=fuse", "--overlay=tmpfs"]][round % 3];
        let args = [&["run"][..], more, &["--at", &at, &image, "--", "sh", "-c", &script]].concat();
        let mut command =
            if round % 2 == 0 || !has_user_namespaces() { kiln() } else { as_nobody(env!("CARGO_BIN_EXE_kiln")) };
        let mut child = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_micros(rng.below(60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(is_nothing_left(&at), "{:?}", left(&at));
    assert_eq!(names(&at), [""; 0]);
    assert_eq!(scratch.names(), ["at", "image", "tree"]);
}

#[test]
fn doctor_tells_what_works_here() {
    let told = crate::common::json(&stdout(&["doctor", "--json"]));
    let findings = told["findings"].as_array().unwrap();
    let answer =
        |name: &str| findings.iter().find(|one| one["name"] == name).map(|one| one["answer"].as_str().unwrap());
    assert!(findings.len() >= 5, "{told}");
    // What it says is what the other tests find.
    assert_eq!(answer("FUSE") == Some("yes"), fs::File::options().read(true).write(true).open("/dev/fuse").is_ok());
    if has_fuse() {
        let scratch = Scratch::new();
        let image = image(&scratch);
        let mounts = run(&["mount", "--via=kernel", &image, &scratch.path("at")]).status.success();
        if mounts {
            stdout(&["umount", &scratch.path("at")]);
        }
        assert_eq!(answer("EROFS with Zstandard") == Some("yes"), mounts, "{told}");
        assert_eq!(answer("namespaces for kiln run"), Some("yes"));
    }
    for finding in findings {
        let needs_help = finding["answer"] == "no" && finding["name"] != "io_uring";
        assert!(!needs_help || !finding["help"].as_str().unwrap().is_empty(), "{finding}");
    }
    let text = String::from_utf8(stdout(&["doctor"])).unwrap();
    assert!(text.starts_with("Linux ") && text.lines().count() > findings.len(), "{text}");
}
