//! Timing of a disk: arithmetic alone, nobody sleeps here.
//!
//! A disk serves `depth` requests at once, in the order in which they arrive. A request that arrives at `t`
//!
//! 1. waits until one of the places is free: `start = max(t, time at which the first place gets free)`;
//! 2. is looked up: `found = start + latency`, and `seek` more if it does not begin where the request before it ends;
//! 3. is carried over the only wire, behind the requests that came before it:
//!    `end = max(found, time at which the wire gets free) + length ÷ bandwidth`.
//!
//! Its place and the wire are free again at `end`. So a reader that waits for each request gets
//! `1 ÷ (latency + length ÷ bandwidth)` requests a second, many readers get
//! `min(depth ÷ latency, bandwidth ÷ length)`, and none gets more bytes than the bandwidth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Properties of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Time from the start of a request to its first byte.
    pub latency: Duration,
    /// Bytes that are carried in a second; 0 if that takes no time.
    pub bandwidth: u64,
    /// Number of requests that are served at once; at least 1.
    pub depth: usize,
    /// Time that is added to the latency of a request elsewhere.
    pub seek: Duration,
}

/// A disk at work. Times are durations since any one moment.
#[derive(Debug)]
pub struct Disk {
    class: Class,
    /// Times at which the places get free, the earliest first.
    places: BinaryHeap<Reverse<Duration>>,
    wire: Duration,
    head: u64,
    /// Number of requests that did not begin where the request before them ends.
    pub seeks: u64,
    /// Bytes between the ends of requests and the beginnings of the next.
    pub distance: u64,
}

impl Disk {
    /// Makes a disk that nobody has used, whose head is at its beginning.
    pub fn new(class: Class) -> Self {
        let places = (0..class.depth.max(1)).map(|_| Reverse(Duration::ZERO)).collect();
        Self { class, places, wire: Duration::ZERO, head: 0, seeks: 0, distance: 0 }
    }

    /// Returns the time at which a request is complete that arrives `now`. Requests must come in the order of time.
    pub fn serve(&mut self, now: Duration, offset: u64, len: u64) -> Duration {
        let is_elsewhere = offset != self.head;
        if is_elsewhere {
            self.seeks += 1;
            self.distance += offset.abs_diff(self.head);
        }
        self.head = offset.saturating_add(len);
        let Reverse(free) = self.places.pop().unwrap_or_default();
        let seek = if is_elsewhere { self.class.seek } else { Duration::ZERO };
        let found = now.max(free) + self.class.latency + seek;
        let end = found.max(self.wire) + self.carried(len);
        self.wire = end;
        self.places.push(Reverse(end));
        end
    }

    /// Returns the time in which bytes are carried.
    fn carried(&self, len: u64) -> Duration {
        let nanos = (u128::from(len) * 1_000_000_000).checked_div(self.class.bandwidth.into()).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: Class = Class { latency: us(100), bandwidth: 0, depth: 1, seek: Duration::ZERO };

    const fn us(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Returns the ends of requests of 1000 bytes, of which each begins where the last one ends.
    fn ends(class: Class, arrivals: &[u64]) -> Vec<Duration> {
        let mut disk = Disk::new(class);
        (0..).zip(arrivals).map(|(i, &at)| disk.serve(us(at), i * 1000, 1000)).collect()
    }

    #[test]
    fn a_disk_of_depth_one_serves_one_request_after_the_other() {
        assert_eq!(ends(CLASS, &[0, 0, 10, 500]), [us(100), us(200), us(300), us(600)]);
    }

    #[test]
    fn a_third_request_waits_for_the_first_of_two_places() {
        let class = Class { depth: 2, ..CLASS };
        assert_eq!(ends(class, &[0, 30, 40, 40]), [us(100), us(130), us(200), us(230)]);
    }

    #[test]
    fn one_wire_carries_the_bytes_of_all_places() {
        // 1000 bytes take 50 µs: requests that are found at once end one after the other.
        let class = Class { bandwidth: 20_000_000, depth: 8, ..CLASS };
        assert_eq!(ends(class, &[0, 0, 0, 1000]), [us(150), us(200), us(250), us(1150)]);
    }

    #[test]
    fn a_wire_that_is_slower_than_the_places_limits_many_readers() {
        let class = Class { bandwidth: 20_000_000, depth: 32, ..CLASS };
        let last = ends(class, &[0; 1000]).pop();
        assert_eq!(last, Some(us(100 + 1000 * 50)));
    }

    #[test]
    fn places_that_are_slower_than_the_wire_limit_many_readers() {
        let class = Class { depth: 4, ..CLASS };
        let last = ends(class, &[0; 1000]).pop();
        assert_eq!(last, Some(us(1000 / 4 * 100)));
    }

    #[test]
    fn only_requests_elsewhere_pay_for_a_seek() {
        let mut disk = Disk::new(Class { seek: us(5000), ..CLASS });
        assert_eq!(disk.serve(us(0), 0, 10), us(100));
        assert_eq!(disk.serve(us(200), 10, 10), us(300));
        assert_eq!(disk.serve(us(400), 1000, 10), us(5500));
        assert_eq!(disk.serve(us(400), 1010, 10), us(5600));
        assert_eq!(disk.serve(us(6000), 0, 10), us(11_100));
        assert_eq!((disk.seeks, disk.distance), (2, 980 + 1020));
    }

    #[test]
    fn no_length_overflows() {
        let mut disk = Disk::new(Class { bandwidth: 1, ..CLASS });
        assert_eq!(disk.serve(us(0), u64::MAX, u64::MAX), us(100) + Duration::from_nanos(u64::MAX));
    }
}
