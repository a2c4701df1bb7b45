//! Reads recorded by our FUSE server.

use super::Reads;
use crate::fuse::ask::{Question, is_unknown};
use crate::fuse::recorder::answer::{Answer, RECORDS_MAX};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::thread;
use std::time::Duration;

/// Time between two requests to the server.
const PERIOD: Duration = Duration::from_millis(50);
/// Largest number of answers at a time: more than a server with bounded memory can fill, unless
/// programs read without end.
const ANSWERS_MAX: usize = 1 << 10;

/// Recording of a server. It ends when this is dropped.
pub(super) struct ServerReads {
    root: File,
    read_ahead: u64,
    /// Number of records that the server has lost so far.
    lost: u64,
    is_over: bool,
}

impl ServerReads {
    /// Starts a recording by the server of the mount whose root is `root`. Returns `None` if it has
    /// no such server.
    pub(super) fn start(root: &File) -> io::Result<Option<Self>> {
        let started = match Question::StartRecording.ask(root) {
            Ok(bytes) => Answer::decode(&*bytes),
            Err(error) if is_unknown(error) => None,
            Err(Errno::BUSY) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "it is being recorded already"));
            }
            Err(Errno::PERM) => {
                let reason = "only root and the user who mounted it may";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
            }
            Err(error) => return Err(error.into()),
        };
        let Some(Answer { read_ahead, .. }) = started else { return Ok(None) };
        Ok(Some(Self { root: root.try_clone()?, read_ahead, lost: 0, is_over: false }))
    }

    /// Returns the number of bytes that the kernel reads ahead meanwhile.
    pub(super) fn read_ahead(&self) -> u64 {
        self.read_ahead
    }

    pub(super) fn fetch(&mut self, reads: &mut Reads) -> io::Result<()> {
        self.take_all(Question::DrainRecording, reads)
    }

    pub(super) fn wait(&self) -> io::Result<()> {
        thread::park_timeout(PERIOD);
        Ok(())
    }

    pub(super) fn end(mut self, reads: &mut Reads) -> io::Result<()> {
        // After an error, there is nothing left to stop.
        self.is_over = true;
        self.take_all(Question::StopRecording, reads)
    }

    /// Requests records until there are no more.
    fn take_all(&mut self, question: Question, reads: &mut Reads) -> io::Result<()> {
        for _ in 0..ANSWERS_MAX {
            if self.take(question, reads)? < RECORDS_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Requests records. Returns their number.
    fn take(&mut self, question: Question, reads: &mut Reads) -> io::Result<usize> {
        let bytes = question.ask(&self.root).map_err(|error| match error {
            Errno::NODATA => io::Error::other("its server has ended the recording after a minute without requests"),
            Errno::NOTCONN | Errno::CONNABORTED => io::Error::other("its server has ended meanwhile"),
            error => error.into(),
        })?;
        let answer = Answer::decode(&*bytes).ok_or_else(|| io::Error::other("its server sent an invalid answer"))?;
        let count = answer.records.len();
        answer.records.into_iter().for_each(|record| reads.push(record));
        // The server counts from the start.
        reads.lost = reads.lost.saturating_add(answer.lost.saturating_sub(self.lost));
        self.lost = answer.lost;
        Ok(count)
    }
}

impl Drop for ServerReads {
    fn drop(&mut self) {
        if !self.is_over {
            // The records are not needed, and a server that is gone has none.
            let mut reads = Reads::default();
            let _ = self.take_all(Question::StopRecording, &mut reads);
        }
    }
}
