//! Questions to a server: ioctls on the root of its mount, so that no socket is to be found. Their numbers have no meaning elsewhere: other
//! filesystems answer that they do not know them.

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;

/// Bytes of an answer; one that is shorter ends with zeros.
pub(crate) const ANSWER_LEN: usize = 15 << 10;

/// Memory for an answer.
type Room = [u8; ANSWER_LEN];

const METRICS: Opcode = opcode::read::<Room>(b'k', 1);
const START_RECORDING: Opcode = opcode::read::<Room>(b'k', 2);
const DRAIN_RECORDING: Opcode = opcode::read::<Room>(b'k', 3);
const STOP_RECORDING: Opcode = opcode::read::<Room>(b'k', 4);

/// What a server can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The text of its counters.
    Metrics,
    /// To record reads from now on.
    StartRecording,
    /// The reads that were recorded since the last such question.
    DrainRecording,
    /// The last of them, and to record no more.
    StopRecording,
}

impl Question {
    /// The question that an ioctl stands for.
    pub(super) fn of(command: Opcode) -> Option<Self> {
        match command {
            METRICS => Some(Question::Metrics),
            START_RECORDING => Some(Question::StartRecording),
            DRAIN_RECORDING => Some(Question::DrainRecording),
            STOP_RECORDING => Some(Question::StopRecording),
            _ => None,
        }
    }

    /// Ask the server of the mount whose root is `root`.
    pub(crate) fn ask(self, root: &File) -> Result<Box<Room>, Errno> {
        match self {
            Question::Metrics => ask::<METRICS>(root),
            Question::StartRecording => ask::<START_RECORDING>(root),
            Question::DrainRecording => ask::<DRAIN_RECORDING>(root),
            Question::StopRecording => ask::<STOP_RECORDING>(root),
        }
    }
}

#[allow(unsafe_code)]
fn ask<const OPCODE: Opcode>(root: &File) -> Result<Box<Room>, Errno> {
    let mut room = Box::new([0; ANSWER_LEN]);
    // SAFETY: the numbers above say that the calls write so many bytes to their argument, which is as long; the bytes are initialised,
    // whatever is written.
    unsafe { ioctl(root, Updater::<OPCODE, Room>::new(&mut room)) }?;
    Ok(room)
}

/// Whether an error says that there is no server that knows the question.
pub(crate) fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::NOTTY | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL)
}
