//! `kiln mount -o LIST`, with the options of mount(8).

use kiln_mount::Attributes;
use std::fmt;
use std::str::FromStr;

/// An item of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOption {
    text: String,
    effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// No effect: it is the default.
    None,
    Suid(bool),
    Dev(bool),
    Exec(bool),
    SymFollow(bool),
    AllowOther,
    DefaultPermissions,
    FsName(String),
}

/// The options of a list. The last one of several that contradict each other counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    pub attributes: Attributes,
    pub allow_other: bool,
    pub default_permissions: bool,
    pub fsname: Option<String>,
}

impl MountOptions {
    pub fn of(list: &[MountOption]) -> Self {
        let mut options = Self::default();
        for option in list {
            options.set(&option.effect);
        }
        options
    }

    fn set(&mut self, effect: &Effect) {
        match effect {
            Effect::None => {}
            Effect::Suid(is_set) => self.attributes.suid = *is_set,
            Effect::Dev(is_set) => self.attributes.dev = *is_set,
            Effect::Exec(is_set) => self.attributes.exec = *is_set,
            Effect::SymFollow(is_set) => self.attributes.symfollow = *is_set,
            Effect::AllowOther => self.allow_other = true,
            Effect::DefaultPermissions => self.default_permissions = true,
            Effect::FsName(name) => self.fsname = Some(name.clone()),
        }
    }
}

impl MountOption {
    /// Returns true if it names the mount in the mount table.
    pub fn is_fsname(&self) -> bool {
        matches!(self.effect, Effect::FsName(_))
    }
}

impl FromStr for MountOption {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let effect = match text {
            // A read-only filesystem stores no access times. A list may end with a comma, and come from fstab(5).
            "" | "ro" | "noatime" | "nodiratime" | "relatime" | "defaults" | "auto" | "noauto" | "nofail"
            | "_netdev" => Effect::None,
            "suid" => Effect::Suid(true),
            "nosuid" => Effect::Suid(false),
            "dev" => Effect::Dev(true),
            "nodev" => Effect::Dev(false),
            "exec" => Effect::Exec(true),
            "noexec" => Effect::Exec(false),
            "symfollow" => Effect::SymFollow(true),
            "nosymfollow" => Effect::SymFollow(false),
            "allow_other" => Effect::AllowOther,
            "default_permissions" => Effect::DefaultPermissions,
            "rw" => return Err("images are read-only"),
            "loop" => return Err("kiln makes a loop device where one is needed"),
            _ => match text.split_once('=') {
                Some(("fsname", name)) if !name.is_empty() => Effect::FsName(name.to_owned()),
                Some(("pin", _)) => return Err("decoded data is kept by --pin"),
                Some(("device", _)) => return Err("extra devices are named by --device"),
                Some(("offset" | "fsoffset", _)) => return Err("the place of the image is for --offset"),
                _ => return Err("no such mount option: see `kiln help mounting`"),
            },
        };
        Ok(Self { text: text.to_owned(), effect })
    }
}

impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &str) -> Result<MountOptions, &'static str> {
        let list: Vec<MountOption> = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(MountOptions::of(&list))
    }

    #[test]
    fn the_last_one_counts() {
        assert_eq!(options("ro,noatime,"), Ok(MountOptions::default()));
        let attributes = Attributes { suid: false, dev: true, exec: false, symfollow: true };
        let expected =
            MountOptions { attributes, allow_other: true, default_permissions: true, fsname: Some("a=b".into()) };
        let list = "suid,dev,noexec,nosuid,allow_other,default_permissions,fsname=x,fsname=a=b";
        assert_eq!(options(list), Ok(expected));
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for list in [
            "rw",
            "ro,frob",
            "fsname",
            "fsname=",
            "device=/dev/sdb",
            "fsoffset=4096",
            "loop",
            "suid=1",
            "RO",
            "pin",
            "pin=64M",
        ] {
            assert!(options(list).is_err(), "{list}");
        }
    }
}
