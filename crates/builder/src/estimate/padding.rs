//! Padding between streams, which start at multiples of an alignment.

use super::Interval;
use super::frame::Frame;
use super::observed::Observed;
use crate::format::Format;
use crate::pack::jobs::{PackJob, Task};
use crate::plan::Plan;

/// Half the interval that contains 95 of 100 numbers of a uniform distribution over an interval of length 1.
const UNIFORM_ERROR: f64 = 0.475;

/// Returns the padding behind a job: half a block on average, if a block boundary follows encoded extents.
pub(super) fn behind(one: &Observed, format: &Format) -> f64 {
    match one.blocks > 0 {
        true if one.is_file && format.layout.data_align > 1 => rest(one.blocks, format.layout.data_align) as f64,
        true if format.compression.encoded_extents && one.is_flat => format.block_bits.len() as f64 / 2.0,
        _ => 0.0,
    }
}

/// Returns the padding behind streams of several jobs in the image. Nothing lies behind the last of all streams.
pub(super) fn behind_streams(frame: &Frame, plan: &Plan, has_blob: bool, format: &Format) -> Interval {
    let align = format.layout.data_align;
    if align == 1 {
        return Interval::exact(0.0);
    }
    let unknown = |sign: f64| Interval { value: sign * align as f64 / 2.0, error: UNIFORM_ERROR * align as f64 };
    let padding = |parts: &[PackJob]| match &parts[0] {
        part if matches!(part.task, Task::Whole { .. }) || has_blob && plan.is_in_chunks(part.stream) => None,
        _ => Some(stored_len(parts, format).map_or(unknown(1.0), |len| Interval::exact(rest(len, align) as f64))),
    };
    let streams = frame.parts.chunk_by(|a, b| a.stream == b.stream).filter_map(padding);
    streams.chain((!frame.parts.is_empty()).then_some(unknown(-1.0))).sum()
}

/// Returns the bytes of a stream that is not compressed.
fn stored_len(parts: &[PackJob], format: &Format) -> Option<u64> {
    let len = |part: &PackJob| match part.task {
        Task::Copy | Task::Chunks(_) => {
            Some((part.range.end - part.range.start).next_multiple_of(format.block_bits.len()))
        }
        Task::Tail => Some(0),
        Task::Segment | Task::Whole { .. } | Task::Recut(_) => None,
    };
    parts.iter().map(len).sum()
}

/// Rounds a length up to a multiple of `align`.
pub(super) fn whole(len: Interval, align: u64) -> Interval {
    match align {
        1 => len,
        _ => {
            let value = (len.value / align as f64).ceil() * align as f64;
            Interval { value, error: if len.error > 0.0 { len.error + align as f64 } else { 0.0 } }
        }
    }
}

/// Returns the distance from byte `len` to the next multiple of `align`.
fn rest(len: u64, align: u64) -> u64 {
    len.next_multiple_of(align) - len
}
