//! File capabilities, see capabilities(7), and the extended attribute that stores them.

use crate::Xattr;

use crate::syntax::SyntaxError;

/// Name of the extended attribute.
pub(super) const XATTR_NAME: &[u8] = b"security.capability";

/// Revision 2 of the attribute: two sets of 64 bits. Revision 3 adds the root user of a namespace.
const REVISION_2: u32 = 0x0200_0000;
/// Flag: all permitted capabilities are effective.
const EFFECTIVE: u32 = 1;

/// Names by bit, without the prefix `cap_`.
const NAMES: [&str; 41] = [
    "chown",
    "dac_override",
    "dac_read_search",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "linux_immutable",
    "net_bind_service",
    "net_broadcast",
    "net_admin",
    "net_raw",
    "ipc_lock",
    "ipc_owner",
    "sys_module",
    "sys_rawio",
    "sys_chroot",
    "sys_ptrace",
    "sys_pacct",
    "sys_admin",
    "sys_boot",
    "sys_nice",
    "sys_resource",
    "sys_time",
    "sys_tty_config",
    "mknod",
    "lease",
    "audit_write",
    "audit_control",
    "setfcap",
    "mac_override",
    "mac_admin",
    "syslog",
    "wake_alarm",
    "block_suspend",
    "audit_read",
    "perfmon",
    "bpf",
    "checkpoint_restore",
];

/// Capabilities of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// True if all permitted capabilities are effective.
    pub effective: bool,
    /// Bit set of permitted capabilities.
    pub permitted: u64,
    /// Bit set of inheritable capabilities.
    pub inheritable: u64,
}

impl Capabilities {
    /// Adds a clause in the syntax of cap_from_text(3): names separated by commas, `+` or `=`, and
    /// any of `e`, `i` and `p`.
    ///
    /// # Errors
    /// Unknown names and flags.
    pub fn add(&mut self, clause: &[u8]) -> Result<(), SyntaxError> {
        let refuse = |reason: String| SyntaxError::new("capability", clause, reason);
        let form = || refuse("write it as cap_NAME+FLAGS, where FLAGS are any of e, i and p".into());
        let text = str::from_utf8(clause).map_err(|_| form())?.to_ascii_lowercase();
        let (names, flags) = text.split_once(['+', '=']).ok_or_else(form)?;
        let mut set = 0_u64;
        for name in names.split(',') {
            let known = name.strip_prefix("cap_").and_then(|name| NAMES.iter().position(|known| *known == name));
            set |= 1 << known.ok_or_else(|| refuse(format!("unknown capability {name}")))?;
        }
        if flags.is_empty() || flags.contains(|flag| !matches!(flag, 'e' | 'i' | 'p')) {
            return Err(form());
        }
        self.effective |= flags.contains('e');
        self.permitted |= if flags.contains('p') { set } else { 0 };
        self.inheritable |= if flags.contains('i') { set } else { 0 };
        Ok(())
    }

    /// Returns the extended attribute.
    pub fn xattr(self) -> Xattr {
        let magic = REVISION_2 | if self.effective { EFFECTIVE } else { 0 };
        let (low, high) = (|set: u64| set as u32, |set: u64| (set >> 32) as u32);
        let words = [magic, low(self.permitted), low(self.inheritable), high(self.permitted), high(self.inheritable)];
        Xattr { name: XATTR_NAME.into(), value: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_add_up() {
        let mut all = Capabilities::default();
        all.add(b"cap_sys_admin+eip").unwrap();
        all.add(b"CAP_NET_RAW,cap_bpf=p").unwrap();
        let expected = Capabilities { effective: true, permitted: 1 << 21 | 1 << 13 | 1 << 39, inheritable: 1 << 21 };
        assert_eq!(all, expected);
        let value = [&[1, 0, 0, 2][..], &[0, 0x20, 0x20, 0], &[0, 0, 0x20, 0], &[0x80, 0, 0, 0], &[0, 0, 0, 0]];
        assert_eq!(&*all.xattr().value, value.concat());
        for clause in ["", "cap_bpf", "cap_x+ep", "bpf+ep", "cap_bpf+", "cap_bpf+x", "+ep", "cap_bpf-e"] {
            assert!(all.add(clause.as_bytes()).is_err(), "{clause}");
        }
    }
}
