//! Default size of a FUSE server's cache, and available memory.

use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;
const SHARE: u64 = 16;

/// Returns a value for [`FuseOptions::cache_bytes`](crate::fuse::FuseOptions::cache_bytes) on this
/// machine: a sixteenth of the memory, or of the limit of this process's control group, from 64 MiB
/// to 1 GiB, but no more than a quarter of the memory. Extents that many small files share are worth
/// caching: if the files are read in random order, each extent is needed as often as it has files.
/// The kernel has its own caches, too, without a limit.
pub fn default_cache() -> u64 {
    share_of(available())
}

fn share_of(memory: u64) -> u64 {
    let cache = (memory / SHARE).clamp(64 * MIB, 1024 * MIB);
    // Where neither limit nor memory can be read, `memory` is 0.
    if memory == 0 { cache } else { cache.min(memory / 4) }
}

/// Returns the memory of the machine in bytes, or the limit of this process's control group if that
/// is less.
pub(crate) fn available() -> u64 {
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| in_kib(&text)).unwrap_or(0);
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| limit(text.lines().next()?));
    group.map_or(total, |group| group.min(total))
}

fn in_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Returns the smallest limit of a group, given as a line of `/proc/self/cgroup`, and of the groups
/// above it.
fn limit(line: &str) -> Option<u64> {
    let group = Path::new("/sys/fs/cgroup").join(line.strip_prefix("0::/")?);
    let limits = group.ancestors().take_while(|path| path.starts_with("/sys/fs/cgroup"));
    limits.filter_map(|path| fs::read_to_string(path.join("memory.max")).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_bounded() {
        assert_eq!(in_kib("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), Some(24_000_000 << 10));
        assert_eq!(in_kib("MemFree: 1 kB\n"), None);
        assert_eq!(
            limit("0::/no such group/at all"),
            fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok())
        );
        assert!((64 * MIB..=1024 * MIB).contains(&default_cache()));
        for (memory, cache) in [(0, 64), (32, 8), (200, 50), (512, 64), (4096, 256), (1 << 20, 1024)] {
            assert_eq!(share_of(memory * MIB), cache * MIB, "{memory} MiB");
        }
    }
}
