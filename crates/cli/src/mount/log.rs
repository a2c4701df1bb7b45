//! The log of a FUSE server: errors of requests, and messages that no caller could receive.

use crate::console::text;
use crate::exit::Failure;
use kiln_mount::fuse::NOTES;
use log::{LevelFilter, Metadata, Record};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most lines in a period; a count of omitted ones follows. A damaged file may be read without end.
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);
/// Socket of syslogd(8) and journald.
const SYSLOG: &str = "/dev/log";
/// Facility `daemon`, severity `warning`, as syslog(3) numbers them.
const PRIORITY: u32 = 3 << 3 | 4;

/// The destination of lines.
pub enum Target {
    Stderr,
    Syslog,
    File(File),
}

impl Target {
    /// Opens the file at `path` to append to it.
    pub fn file(path: &Path) -> Result<Self, Failure> {
        let opened = File::options().append(true).create(true).open(path);
        let failed = |source| Failure::File { path: path.to_owned(), action: "log to it", source };
        Ok(Target::File(opened.map_err(failed)?))
    }
}

/// Choice of lines other than errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    Logged,
    LeftOut,
}

/// The log of this process.
struct Log {
    target: Target,
    notes: Notes,
    /// Beginning of each line.
    image: String,
    limit: Mutex<Limit>,
}

/// Starts the log of this process to `target`. Every line names `image`.
pub fn start(target: Target, notes: Notes, image: &Path) {
    let log = Log { target, notes, image: image.display().to_string(), limit: Mutex::default() };
    // There is one server in a process: this is the first and only log.
    if log::set_boxed_logger(Box::new(log)).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Logs the number of lines that were omitted since the last one.
pub fn end() {
    log::logger().flush();
}

impl log::Log for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= LevelFilter::Warn && (self.notes == Notes::Logged || metadata.target() != NOTES)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // The lock is held until the line is written, so that lines are in order.
        let mut limit = self.limit.lock();
        if let Some(left_out) = limit.admit(Instant::now()) {
            self.left_out(left_out);
            self.line(&format!("{}: {}", self.image, record.args()));
        }
    }

    fn flush(&self) {
        let mut limit = self.limit.lock();
        self.left_out(std::mem::take(&mut limit.left_out));
    }
}

impl Log {
    fn left_out(&self, count: u64) {
        if count > 0 {
            self.line(&format!("{}: {count} more lines were left out", self.image));
        }
    }

    /// Writes a line. If that fails, there is no other place for it.
    fn line(&self, line: &str) {
        let pid = std::process::id();
        let _ = match &self.target {
            Target::Stderr => writeln!(io::stderr().lock(), "kiln: {line}"),
            Target::Syslog => send(Path::new(SYSLOG), &format!("<{PRIORITY}>kiln[{pid}]: {line}")),
            Target::File(file) => {
                let secs = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                let time = text::time(i64::try_from(secs).unwrap_or(i64::MAX));
                // One write, so that servers can share a file.
                (&*file).write_all(format!("{time} kiln[{pid}]: {line}\n").as_bytes())
            }
        };
    }
}

/// Sends one message to the system's log, which listens at `log`, in the form of RFC 3164. Its time is that of its
/// arrival. A log that is full or gone must not hold up a server.
fn send(log: &Path, message: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to(message.as_bytes(), log).map(drop)
}

/// The limit on logged lines.
#[derive(Default)]
struct Limit {
    /// Start of the period.
    since: Option<Instant>,
    /// Lines in the period so far.
    lines: u32,
    /// Lines omitted since the last one that was written.
    left_out: u64,
}

impl Limit {
    /// Returns whether a line may be written `now`, and if so, the number of omitted lines before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD);
        if is_over {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_tests::temp::TempDir;

    #[test]
    fn the_system_gets_messages_and_holds_nobody_up() {
        let scratch = TempDir::new("log").unwrap();
        let path = scratch.join("socket");
        assert!(send(&path, "nothing listens").is_err());
        let socket = UnixDatagram::bind(&path).unwrap();
        send(&path, "<28>kiln[1]: x").unwrap();
        let mut message = [0; 64];
        let len = socket.recv(&mut message).unwrap();
        assert_eq!(&message[..len], b"<28>kiln[1]: x");
        // No one receives: at last there is no room.
        while send(&path, "more").is_ok() {}
    }

    #[test]
    fn so_many_lines_in_a_minute_and_then_a_count() {
        let start = Instant::now();
        let at = |secs: u64| start + Duration::from_secs(secs);
        let mut limit = Limit::default();
        for line in 0..10 {
            assert_eq!(limit.admit(at(line)), Some(0));
        }
        for line in 10..60 {
            assert_eq!(limit.admit(at(line)), None);
        }
        assert_eq!(limit.admit(at(60)), Some(50));
        for line in 61..70 {
            assert_eq!(limit.admit(at(line)), Some(0));
        }
        assert_eq!((limit.admit(at(119)), limit.left_out), (None, 1));
        assert_eq!(limit.admit(at(500)), Some(1));
    }
}
