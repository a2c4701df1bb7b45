//! Questions to a server: ioctls on the root of its mount, so that clients need not find a socket.
//! Other filesystems answer that they do not know these numbers.

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::fs::File;

/// Length of an answer in bytes. A shorter one is padded with zeros.
pub(crate) const ANSWER_LEN: usize = 15 << 10;

/// Buffer for an answer.
type Room = [u8; ANSWER_LEN];

const METRICS: Opcode = opcode::read::<Room>(b'k', 1);
const START_RECORDING: Opcode = opcode::read::<Room>(b'k', 2);
const DRAIN_RECORDING: Opcode = opcode::read::<Room>(b'k', 3);
const STOP_RECORDING: Opcode = opcode::read::<Room>(b'k', 4);

/// Question to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Requests the text of its counters.
    Metrics,
    /// Requests that reads are recorded from now on.
    StartRecording,
    /// Requests the reads recorded since the last such question.
    DrainRecording,
    /// Requests the last recorded reads, and ends the recording.
    StopRecording,
}

impl Question {
    /// Returns the question of an ioctl.
    pub(super) fn of(command: Opcode) -> Option<Self> {
        match command {
            METRICS => Some(Question::Metrics),
            START_RECORDING => Some(Question::StartRecording),
            DRAIN_RECORDING => Some(Question::DrainRecording),
            STOP_RECORDING => Some(Question::StopRecording),
            _ => None,
        }
    }

    /// Asks the server of the mount whose root is `root`.
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
    // SAFETY: the opcodes above mean that the calls write ANSWER_LEN bytes to their argument, which
    // has that length; all bytes are initialised beforehand.
    unsafe { ioctl(root, Updater::<OPCODE, Room>::new(&mut room)) }?;
    Ok(room)
}

/// Returns true if the error means that no server that knows the question is there.
pub(crate) fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::NOTTY | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL)
}
