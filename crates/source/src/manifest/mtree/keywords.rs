//! Keywords of a manifest, which describe a file or set defaults for all following files.

use kiln_format::inode::{FileType, Rdev};
use kiln_tree::{Metadata, SyntaxError};

use super::escapes::unescape;
use crate::manifest::fields::{checked, device, id, in_radix, mode, number};
use kiln_tree::policy::Chmod;

/// Device number formats of systems with separate major and minor numbers.
const DEVICE_FORMATS: [&[u8]; 15] = [
    b"native", b"386bsd", b"4bsd", b"freebsd", b"hpux", b"isc", b"linux", b"netbsd", b"osf1", b"sco", b"solaris",
    b"sunos", b"svr3", b"svr4", b"ultrix",
];

/// Keywords without a counterpart in a tree: BSD flags, tags, and digests that are not checked.
const WITHOUT_EFFECT: [&[u8]; 15] = [
    b"cksum",
    b"flags",
    b"ignore",
    b"md5",
    b"md5digest",
    b"nochange",
    b"rmd160",
    b"rmd160digest",
    b"sha1",
    b"sha1digest",
    b"sha384",
    b"sha384digest",
    b"sha512",
    b"sha512digest",
    b"tags",
];

/// Values of the keywords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keywords {
    pub file_type: Option<FileType>,
    permissions: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    uname: Option<Vec<u8>>,
    gname: Option<Vec<u8>>,
    /// Modification time in seconds and nanoseconds since 1970.
    time: Option<(i64, u32)>,
    pub link: Option<Vec<u8>>,
    /// Length in bytes.
    pub size: Option<u64>,
    pub device: Option<Rdev>,
    nlink: Option<u64>,
    /// Path of the contents, if it is not the file's own path.
    pub contents: Option<Vec<u8>>,
    pub sha256: Option<[u8; 32]>,
    inode: Option<u64>,
    resdevice: Option<Vec<u8>>,
    /// True if the file need not exist.
    pub optional: bool,
}

impl Keywords {
    /// Sets a keyword from a word `KEYWORD` or `KEYWORD=VALUE`.
    ///
    /// # Errors
    /// Unknown keywords and invalid values.
    pub(super) fn set(&mut self, word: &[u8]) -> Result<(), SyntaxError> {
        let (name, value) = match word.iter().position(|&b| b == b'=') {
            Some(at) => (&word[..at], &word[at + 1..]),
            None => (word, &b""[..]),
        };
        match name {
            b"type" => self.file_type = Some(file_type(value)?),
            b"mode" => self.permissions = Some(permissions(value)?),
            b"uid" => self.uid = Some(id("uid", value)?),
            b"gid" => self.gid = Some(id("gid", value)?),
            b"uname" => self.uname = Some(value.to_vec()),
            b"gname" => self.gname = Some(value.to_vec()),
            b"time" => self.time = Some(time(value)?),
            b"link" => self.link = Some(plain("link", value)?),
            b"size" => self.size = Some(number("size", value)?),
            b"device" => self.device = Some(device_number(value)?),
            b"nlink" => self.nlink = Some(number("nlink", value)?),
            b"content" | b"contents" => self.contents = Some(plain("contents", value)?),
            b"sha256" | b"sha256digest" => self.sha256 = Some(sha256(value)?),
            b"inode" => self.inode = Some(number("inode", value)?),
            b"resdevice" => self.resdevice = Some(value.to_vec()),
            b"optional" => self.optional = true,
            name if WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(SyntaxError::new("keyword", word, "unknown")),
        }
        Ok(())
    }

    /// Unsets a keyword, or all of them.
    ///
    /// # Errors
    /// Unknown keywords.
    pub(super) fn unset(&mut self, name: &[u8]) -> Result<(), SyntaxError> {
        match name {
            b"all" => *self = Self::default(),
            b"type" => self.file_type = None,
            b"mode" => self.permissions = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            b"uname" => self.uname = None,
            b"gname" => self.gname = None,
            b"time" => self.time = None,
            b"link" => self.link = None,
            b"size" => self.size = None,
            b"device" => self.device = None,
            b"nlink" => self.nlink = None,
            b"content" | b"contents" => self.contents = None,
            b"sha256" | b"sha256digest" => self.sha256 = None,
            b"inode" => self.inode = None,
            b"resdevice" => self.resdevice = None,
            b"optional" => self.optional = false,
            name if WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(SyntaxError::new("keyword", name, "unknown")),
        }
        Ok(())
    }

    /// Returns owner, permissions and time. Missing values are those of implied directories: owner
    /// root, and the start of 1970.
    ///
    /// # Errors
    /// Owners with a name and without a number.
    pub(super) fn meta(&self, file_type: FileType) -> Result<Metadata, SyntaxError> {
        let permissions = match file_type {
            FileType::Directory => 0o755,
            FileType::Symlink => 0o777,
            _ => 0o644,
        };
        let owner = |number: Option<u32>, name: &Option<Vec<u8>>, field| match (number, name) {
            (Some(number), _) => Ok(number),
            (None, Some(name)) if name == b"root" => Ok(0),
            (None, Some(name)) => Err(SyntaxError::new(field, name, "it has no number; write uid and gid as well")),
            (None, None) => Ok(0),
        };
        let (mtime, mtime_nsec) = self.time.unwrap_or_default();
        Ok(Metadata {
            permissions: self.permissions.unwrap_or(permissions),
            uid: owner(self.uid, &self.uname, "uname")?,
            gid: owner(self.gid, &self.gname, "gname")?,
            mtime,
            mtime_nsec,
        })
    }

    /// Returns the identity of a file with several names, if the manifest has one.
    pub(super) fn identity(&self) -> Option<(Vec<u8>, u64)> {
        let has_several = self.nlink.is_some_and(|nlink| nlink > 1);
        let inode = self.inode.filter(|_| has_several)?;
        Some((self.resdevice.clone().unwrap_or_default(), inode))
    }
}

fn file_type(value: &[u8]) -> Result<FileType, SyntaxError> {
    Ok(match value {
        b"block" => FileType::BlockDevice,
        b"char" => FileType::CharDevice,
        b"dir" => FileType::Directory,
        b"fifo" => FileType::Fifo,
        b"file" => FileType::Regular,
        b"link" => FileType::Symlink,
        b"socket" => FileType::Socket,
        _ => {
            return Err(SyntaxError::new("type", value, "not one of block, char, dir, fifo, file, link and socket"));
        }
    })
}

/// Parses octal digits, or symbols that set permissions, such as `u=rwx,go=rx`.
fn permissions(value: &[u8]) -> Result<u16, SyntaxError> {
    if value.first().is_some_and(u8::is_ascii_digit) {
        return mode(value);
    }
    let refuse = || SyntaxError::new("mode", value, "expected an octal number, or symbols such as u=rwx,go=rx");
    let symbols: Chmod = str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(refuse)?;
    Ok(symbols.apply(0, false))
}

/// Parses seconds with optional nanoseconds after a dot. These are a number and not a decimal
/// fraction: 1.5 is 5 nanoseconds after 1.
fn time(value: &[u8]) -> Result<(i64, u32), SyntaxError> {
    let refuse = || SyntaxError::new("time", value, "expected SECONDS or SECONDS.NANOSECONDS");
    let (secs, nanos) = match value.iter().position(|&b| b == b'.') {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, &b"0"[..]),
    };
    let secs = str::from_utf8(secs).ok().and_then(|secs| secs.parse().ok()).ok_or_else(refuse)?;
    let nanos: u32 = number("time", nanos).map_err(|_| refuse())?;
    if nanos >= 1_000_000_000 {
        return Err(SyntaxError::new("time", value, "nanoseconds of a second or more"));
    }
    Ok((secs, nanos))
}

/// Parses `FORMAT,MAJOR,MINOR`, or a device number as stat(2) returns it on Linux.
fn device_number(value: &[u8]) -> Result<Rdev, SyntaxError> {
    let fields: Vec<&[u8]> = value.splitn(4, |&b| b == b',').collect();
    match fields[..] {
        [format, major, minor] if DEVICE_FORMATS.contains(&format) => device(major, minor),
        [format, _, _] => Err(SyntaxError::new("device", value, unknown_format(format))),
        [number] => {
            let (digits, radix) = match number {
                [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
                [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
                digits => (digits, 10),
            };
            let number: u32 = in_radix("device", digits, radix, "expected FORMAT,MAJOR,MINOR or a number")?;
            checked(Rdev::decode(number))
        }
        _ => Err(SyntaxError::new("device", value, "write it as FORMAT,MAJOR,MINOR")),
    }
}

fn unknown_format(format: &[u8]) -> String {
    format!("unknown format {}; use native,MAJOR,MINOR", format.escape_ascii())
}

fn plain(field: &'static str, value: &[u8]) -> Result<Vec<u8>, SyntaxError> {
    let plain = unescape(value).ok_or_else(|| SyntaxError::new(field, value, "unknown escape"))?;
    match plain.is_empty() || plain.contains(&0) {
        true => Err(SyntaxError::new(field, value, "empty, or with a zero byte")),
        false => Ok(plain),
    }
}

fn sha256(value: &[u8]) -> Result<[u8; 32], SyntaxError> {
    let digit = |b: &u8| (*b as char).to_digit(16).map(|digit| digit as u8);
    let digits: Option<Vec<u8>> = value.iter().map(digit).collect();
    let bytes =
        digits.map(|digits| digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, d| byte << 4 | d)).collect());
    bytes
        .filter(|_| value.len() == 64)
        .and_then(|bytes: Vec<u8>| bytes.try_into().ok())
        .ok_or_else(|| SyntaxError::new("sha256", value, "not 64 hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Keywords, String> {
        let mut keywords = Keywords::default();
        words.iter().try_for_each(|word| keywords.set(word.as_bytes())).map_err(|error| error.to_string())?;
        Ok(keywords)
    }

    #[test]
    fn owners_permissions_and_times_are_read() {
        let meta = |words: &[&str]| {
            parsed(words).unwrap().meta(FileType::Regular).map(|meta| {
                let Metadata { permissions, uid, gid, mtime, mtime_nsec } = meta;
                (permissions, uid, gid, mtime, mtime_nsec)
            })
        };
        assert_eq!(meta(&[]), Ok((0o644, 0, 0, 0, 0)));
        let words = ["uname=someone", "uid=5", "gname=root", "mode=04755", "time=-3.41863870"];
        assert_eq!(meta(&words), Ok((0o4755, 5, 0, -3, 41_863_870)));
        assert_eq!(meta(&["mode=u=rwx,go=rx", "time=7"]), Ok((0o755, 0, 0, 7, 0)));
        let error = meta(&["gname=wheel"]).unwrap_err().to_string();
        assert_eq!(error, "gname `wheel`: it has no number; write uid and gid as well");
    }

    #[test]
    fn devices_have_several_forms() {
        let device = |text: &str| parsed(&[&format!("device={text}")]).map(|keywords| keywords.device.unwrap());
        let rdev = |major, minor| Ok(Rdev { major, minor });
        assert_eq!(device("native,1,3"), rdev(1, 3));
        assert_eq!(device("netbsd,4095,1048575"), rdev(4095, 1_048_575));
        assert_eq!((device("0x103"), device("259"), device("0403")), (rdev(1, 3), rdev(1, 3), rdev(1, 3)));
        assert_eq!(device("vms,1,3").unwrap_err(), "device `vms,1,3`: unknown format vms; use native,MAJOR,MINOR");
        for text in ["", "1,3", "bsdos,1,2,3", "native,1", "native,4096,0", "native,-1,0", "0x", "5000000000"] {
            assert!(device(text).is_err(), "{text}");
        }
    }

    #[test]
    fn errors_name_field_and_value() {
        for (word, error) in [
            ("type=door", "type `door`: not one of block, char, dir, fifo, file, link and socket"),
            ("mode=9", "mode `9`: not an octal number"),
            ("mode=q", "mode `q`: expected an octal number, or symbols such as u=rwx,go=rx"),
            ("time=1.1000000000", "time `1.1000000000`: nanoseconds of a second or more"),
            ("time=x", "time `x`: expected SECONDS or SECONDS.NANOSECONDS"),
            ("sha256=00", "sha256 `00`: not 64 hexadecimal digits"),
            ("link=", "link ``: empty, or with a zero byte"),
            ("colour=red", "keyword `colour=red`: unknown"),
        ] {
            assert_eq!(parsed(&[word]).unwrap_err(), error);
        }
    }

    #[test]
    fn unset_removes_keywords() {
        let all = [
            "type=file",
            "mode=1",
            "uid=1",
            "gid=1",
            "uname=a",
            "gname=b",
            "time=1",
            "link=l",
            "size=1",
            "device=1",
            "nlink=2",
            "contents=c",
            "inode=1",
            "resdevice=1",
            "optional",
            "flags=none",
        ];
        let mut keywords = parsed(&all).unwrap();
        assert_eq!(keywords.identity(), Some((b"1".to_vec(), 1)));
        for word in all {
            keywords.unset(word.split('=').next().unwrap().as_bytes()).unwrap();
        }
        assert_eq!(keywords, Keywords::default());
        assert!(keywords.unset(b"colour").is_err());
    }
}
