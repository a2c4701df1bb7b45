//! Dumps that follow from a seed, with what decides about places in images: names, tails, shared
//! attributes, whiteouts, hard links.

use super::common::ROOT;
use kiln_tests::rng::Rng;
use std::fmt::Write;

/// Properties that every fourth dump has or has not.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    pub whiteouts: bool,
    /// Hard links anywhere, also before their targets and to other links.
    pub wild_links: bool,
}

impl Traits {
    pub fn of(seed: u64) -> Self {
        Self { whiteouts: seed & 1 == 1, wild_links: seed & 2 == 2 }
    }
}

const KEYS: [&str; 16] = [
    "security.selinux",
    "security.capability",
    "user.a",
    "user.overlay.opaque",
    "user.overlay.whiteout",
    "trusted.overlay.opaque",
    "trusted.overlay.overlay.x",
    "trusted.overlay.x",
    "trusted.overlay.whiteout",
    "trusted.overlaz",
    "trusted.x",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "lustre.lov",
    "os2.x",
    "user.",
];

/// Sizes around those at which the form of an image changes.
const SIZES: [u64; 14] = [
    1,
    4095,
    4096,
    4097,
    1 << 20,
    (1 << 32) - 1,
    1 << 32,
    1 << 43,
    (1 << 43) + 1,
    1 << 44,
    1016 << 43,
    1017 << 43,
    1023 << 43,
    1 << 53,
];

/// Returns a dump.
pub fn dump(seed: u64) -> String {
    let mut maker = Maker { rng: Rng::new(seed), traits: Traits::of(seed), digests: 0 };
    // Paths of directories, and of files that links can lead to.
    let (mut dirs, mut files, mut lines) = (vec![String::new()], Vec::new(), Vec::new());
    let root_xattrs = maker.xattrs();
    for idx in 0..maker.rng.below(40) {
        let parent = maker.rng.pick(&dirs).clone();
        let long = maker.rng.below(6) == 0;
        let count = if long { maker.rng.below(90) } else { maker.rng.below(6) };
        for entry in 0..count {
            let path = format!("{parent}/{}", maker.name(idx * 100 + entry, long));
            let line = match maker.rng.below(12) {
                0..=2 if dirs.len() < 40 => {
                    dirs.push(path.clone());
                    maker.line(&path, "40755", NONE)
                }
                3 if !files.is_empty() => format!("{path} 0 @120000 - - - - 0.0 {} - -", maker.rng.pick(&files)),
                4 if maker.traits.whiteouts => maker.line(&path, "20640", NONE),
                _ => {
                    let line = maker.file(&path);
                    files.push(path);
                    line
                }
            };
            lines.push(line);
        }
    }
    if maker.traits.wild_links {
        // Parents stay first: only files move, to the end.
        let (mut files, dirs): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| !line.contains(" 40755 "));
        maker.rng.shuffle(&mut files);
        lines = dirs.into_iter().chain(files).collect();
    }
    let root = ROOT.trim_end();
    let mut text = format!("{root}{root_xattrs}\n");
    lines.iter().for_each(|line| writeln!(text, "{line}").unwrap());
    text
}

/// Fields of a line that tell the data of a file.
struct Data<'a> {
    size: u64,
    payload: &'a str,
    content: &'a str,
    digest: &'a str,
}

const NONE: Data<'_> = Data { size: 0, payload: "-", content: "-", digest: "-" };

struct Maker {
    rng: Rng,
    traits: Traits,
    digests: u64,
}

impl Maker {
    /// Returns a name that no other number has, escaped.
    fn name(&mut self, number: u64, long: bool) -> String {
        let odd = *self.rng.pick(&["", "", "", ".", "-", "..", "\\xff", "\\x20", "~", "=", ".-", "..a"]);
        let fill = if long { "n".repeat(self.rng.below(240) as usize) } else { String::new() };
        match self.rng.below(8) {
            // Names of stubs.
            0 => format!("{:02x}", number % 256) + if number < 256 { "" } else { odd } + &Self::unique(number),
            _ => format!("{odd}{fill}{number}"),
        }
    }

    fn unique(number: u64) -> String {
        if number < 256 { String::new() } else { format!("_{number}") }
    }

    fn file(&mut self, path: &str) -> String {
        match self.rng.below(10) {
            0 => {
                let near = *self.rng.pick(&[1, 30, 1000, 2000, 3990, 4020, 4095]);
                let target = "t".repeat(1 + self.rng.below(near) as usize);
                self.line(path, "120777", Data { payload: &target, ..NONE })
            }
            1 => {
                let mode = *self.rng.pick(&["10600", "140644", "60600", "20666"]);
                self.line(path, mode, NONE)
            }
            2 => self.line(path, "100600", NONE),
            3..=5 => {
                let near = *self.rng.pick(&[64, 64, 2047, 2049, 4097, 5000]);
                let len = 1 + self.rng.below(near);
                let content: String = (0..len).map(|at| if at % 7 == 3 { "\\x00" } else { "c" }).collect();
                self.line(path, "100644", Data { size: len, content: &content, ..NONE })
            }
            _ => {
                let size = *self.rng.pick(&SIZES);
                self.digests += 1;
                // Some files are equal.
                let digest = format!("{:02x}", self.digests % 50).repeat(32);
                let object = format!("{}/{}", &digest[..2], &digest[2..]);
                let (payload, digest) = match self.rng.below(8) {
                    0 => ("-", "-"),
                    1 => ("-", &*digest),
                    2 => ("/x//y", &*digest),
                    _ => (&*object, &*digest),
                };
                self.line(path, "104755", Data { size, payload, digest, ..NONE })
            }
        }
    }

    fn line(&mut self, path: &str, mode: &str, data: Data<'_>) -> String {
        let Data { size, payload, content, digest } = data;
        let nlink = *self.rng.pick(&[1, 1, 1, 1, 2, 0, 70000]);
        let [uid, gid] = [(); 2].map(|()| *self.rng.pick(&[0, 0, 0, 1000, 65535, 65536]));
        let rdev = if mode == "20640" { 0 } else { *self.rng.pick(&[1, 259, 0xFFFF_FFFF_u32]) };
        let mtime = *self.rng.pick(&["5.0", "5.0", "5.0", "5.7", "6.0", "4294967300.999999999"]);
        let xattrs = self.xattrs();
        format!("{path} {size} {mode} {nlink} {uid} {gid} {rdev} {mtime} {payload} {content} {digest}{xattrs}")
    }

    fn xattrs(&mut self) -> String {
        let mut text = String::new();
        match self.rng.below(60) {
            0 => {
                // More than an inode can share.
                (0..200).for_each(|idx| write!(text, " user.shared{idx}=s").unwrap());
            }
            1 => {
                let value = "v".repeat(self.rng.below(20000) as usize);
                write!(text, " user.long={value}").unwrap();
            }
            2..35 => {}
            _ => {
                for _ in 0..self.rng.below(4) {
                    let key = *self.rng.pick(&KEYS);
                    let value = *self.rng.pick(&["", "a", "a", "b", "ab\\x00", "x", "y", "-"]);
                    write!(text, " {key}={value}").unwrap();
                }
            }
        }
        text
    }
}
