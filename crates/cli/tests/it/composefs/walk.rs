//! The whole way: layers of a container become a composefs image and its objects, everybody mounts them, and one wrong
//! bit is found by all that verify.

use super::text;
use crate::common::{Scratch, run, skip, stderr, stdout};
use crate::mount::{Place, as_nobody, has_fuse};
use crate::oci::{document, index, layout_of_layers};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The file whose object becomes wrong.
const VICTIM: &str = "usr/lib/library";

/// Lists the files below the directory `$1`, each with its SHA-256, or with the error of reading it.
const LIST: &str = "cd \"$1\" && find . -type f | LC_ALL=C sort | while read -r file; do \
                    sum=$(sha256sum \"$file\" 2>&1) && echo \"ok ${sum%% *} ${file#./}\" || echo \"bad $sum\"; done";

/// A container's composefs image, its store, and what the files have.
struct Container {
    scratch: Scratch,
    image: String,
    store: String,
    files: BTreeMap<&'static str, Vec<u8>>,
}

/// Returns the archive of a layer with these files, directories included.
fn layer(scratch: &Scratch, name: &str, files: &BTreeMap<&str, Vec<u8>>) -> Vec<u8> {
    let root = scratch.path(name);
    for (path, contents) in files {
        let path = Path::new(&root).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    let output = Command::new("tar").args(["-C", &root, "-cf", "-", "."]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output.stdout
}

impl Container {
    /// Makes an image of two layers, the upper of which replaces a file and removes one.
    fn new() -> Self {
        let scratch = Scratch::new();
        let lower = BTreeMap::from([
            ("usr/bin/program", vec![1; 5000]),
            (VICTIM, (0..1_500_007_u32).map(|at| ((at * 31) >> 9) as u8).collect()),
            ("usr/share/gone", vec![2; 9000]),
            ("usr/share/short", b"small".to_vec()),
            ("etc/empty", Vec::new()),
        ]);
        let upper = BTreeMap::from([
            ("usr/bin/program", vec![3; 70_000]),
            ("usr/share/.wh.gone", Vec::new()),
            ("usr/share/twin", vec![3; 70_000]),
        ]);
        let layers = [layer(&scratch, "lower", &lower), layer(&scratch, "upper", &upper)];
        let mut files = lower;
        files.extend(upper);
        files.retain(|name, _| !name.contains("gone"));

        let (sealed, image, store) = (scratch.path("sealed"), scratch.path("image"), scratch.path("objects"));
        let layout = layout_of_layers(&scratch, &layers);
        text(&["oci", "convert", "-q", "--composefs=sha256", &layout, &sealed]);
        let id = text(&[
            "composefs",
            "create",
            "-q",
            "--print-digest",
            "--digest-store",
            &store,
            "--from",
            "oci",
            &sealed,
            &image,
        ]);
        // The annotation that seals the container is the image's id.
        let annotations = &document(&sealed, &index(&sealed)[0])["annotations"];
        let annotated = annotations["composefs.merged.erofs.v1.fsverity-sha256-12"].as_str();
        assert_eq!(id.trim_end().rsplit(' ').next(), annotated);
        assert_eq!(text(&["composefs", "info", "measure-file", &image]).trim_end(), annotated.unwrap());
        // The user `nobody` is to read all.
        fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        Self { scratch, image, store, files }
    }

    /// Returns the digest of the victim.
    fn digest(&self) -> String {
        let path = self.scratch.path("victim");
        fs::write(&path, &self.files[VICTIM]).unwrap();
        text(&["composefs", "info", "measure-file", &path]).trim_end().to_owned()
    }

    /// Flips a bit of the victim's object. An object with fs-verity cannot be written, but replaced.
    fn flip(&self, digest: &str) {
        let object = Path::new(&self.store).join(&digest[..2]).join(&digest[2..]);
        let mut bytes = fs::read(&object).unwrap();
        assert!(bytes == self.files[VICTIM]);
        bytes[1_000_000] ^= 0x10;
        fs::remove_file(&object).unwrap();
        fs::write(&object, bytes).unwrap();
    }

    /// Returns the lines of [`LIST`] of files that are not as they should be.
    fn differing(&self, output: &Output) -> Vec<String> {
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}{}", stderr(output));
        let expected: Vec<String> =
            self.files.iter().map(|(name, contents)| format!("ok {} {name}", crate::oci::hex(contents))).collect();
        assert_eq!(told.lines().count(), expected.len(), "{told}");
        told.lines().filter(|line| !expected.iter().any(|one| one == line)).map(String::from).collect()
    }

    /// Mounts the image for a moment by `options`, and returns what is wrong there.
    fn mounted(&self, options: &[&str]) -> Vec<String> {
        let dir = self.scratch.path("mnt");
        fs::create_dir_all(&dir).unwrap();
        let _place = Place(&dir);
        let mount = ["composefs", "mount", "-q", "--objects", &self.store, &self.image, &dir];
        stdout(&[&mount, options].concat());
        self.differing(&Command::new("sh").args(["-c", LIST, "sh", &dir]).output().unwrap())
    }

    /// As [`Container::mounted`], by FUSE, as a user without any privileges, in namespaces of the user's own.
    fn mounted_by_nobody(&self) -> Vec<String> {
        let dir = self.scratch.path("mnt");
        fs::create_dir_all(&dir).unwrap();
        let script = format!(
            "\"$2\" composefs mount -q --via=fuse --objects \"$3\" \"$4\" \"$1\" >&2 || exit 1; {LIST}; \
             cd / && \"$2\" umount \"$1\" >&2"
        );
        let kiln = env!("CARGO_BIN_EXE_kiln");
        let output = as_nobody("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh", &dir, kiln])
            .args([&self.store, &self.image])
            .output()
            .unwrap();
        self.differing(&output)
    }
}

/// Returns true if an ordinary user may have namespaces, in which FUSE can be mounted without a privileged program.
fn has_user_namespaces() -> bool {
    let output = as_nobody("unshare").args(["--user", "--map-root-user", "--mount", "true"]).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn layers_become_a_mounted_tree_in_which_one_wrong_bit_is_found() {
    if !has_fuse() {
        return skip("mounting needs root and /dev/fuse");
    }
    let container = Container::new();
    let (image, store) = (&*container.image, &*container.store);
    let (by_kernel, by_nobody) = (super::objects::has_overlay(), has_user_namespaces());
    let nothing = Vec::<String>::new();
    assert_eq!(container.mounted(&["--via=fuse"]), nothing);
    if by_kernel {
        assert_eq!(container.mounted(&["--via=kernel"]), nothing);
    } else {
        skip("mounting by the kernel needs EROFS and overlayfs");
    }
    if by_nobody {
        assert_eq!(container.mounted_by_nobody(), nothing);
    } else {
        skip("unshare: an ordinary user may have no namespaces");
    }
    stdout(&["composefs", "store", "verify", store]);
    stdout(&["check", "--objects", store, image]);

    let digest = container.digest();
    container.flip(&digest);
    let is_told = |wrong: &[String]| {
        let [line] = wrong else { panic!("{wrong:?}") };
        assert!(line.starts_with("bad ") && line.contains(VICTIM) && line.contains("Input/output error"), "{line}");
    };
    is_told(&container.mounted(&["--via=fuse"]));
    if by_nobody {
        is_told(&container.mounted_by_nobody());
    }
    if by_kernel {
        // The kernel verifies nothing without fs-verity.
        let [line] = &container.mounted(&["--via=kernel"])[..] else { panic!("one file is wrong") };
        assert!(line.starts_with("ok ") && line.ends_with(VICTIM), "{line}");
    }
    let out = container.scratch.path("out");
    for (args, code) in [
        (&["cat", "--objects", store, image, VICTIM][..], 1),
        (&["extract", "-q", "--objects", store, image, &out], 1),
        (&["check", "--objects", store, image], 4),
        (&["composefs", "store", "verify", store], 4),
    ] {
        let output = run(args);
        let told =
            format!("{}{}", String::from_utf8_lossy(&output.stdout[..output.stdout.len().min(9999)]), stderr(&output));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        let named = told.contains(&digest) || told.contains(&format!("{}/{}", &digest[..2], &digest[2..]));
        assert!(named, "{args:?} does not name {digest}: {told}");
    }
    // All other files are read as before.
    for (name, contents) in container.files.iter().filter(|(name, _)| **name != VICTIM) {
        assert!(stdout(&["cat", "--objects", store, image, name]) == *contents, "{name}");
    }
}
