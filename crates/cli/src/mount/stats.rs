//! `kiln stats`

mod samples;

use crate::console::report::{Out, print_document};
use crate::console::size::Human;
use crate::exit::{Exit, Failure};
use kiln_mount::fuse::{self, MetricLabels};
use samples::Samples;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Show statistics of a FUSE mount
///
/// Any process that may open the root of the mount may ask. Mounts by the kernel's driver have no such counters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kiln stats /mnt
  kiln stats --json /mnt | jq .decode_amplification
  kiln stats --prometheus /mnt")]
pub struct Args {
    /// Directory where the image is mounted
    dir: PathBuf,

    /// Print one JSON document
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,

    /// Print the text format of Prometheus, with the labels `image` and `mount`
    #[arg(long)]
    prometheus: bool,
}

/// Counts by upper bounds in bytes; the last is `+Inf`.
type Classes = BTreeMap<String, u64>;

#[derive(Serialize)]
struct StatsJson {
    reads: u64,
    served_bytes: u64,
    read_sizes: Classes,
    fetches: u64,
    fetched_bytes: u64,
    fetch_sizes: Classes,
    fetch_amplification: Option<f64>,
    decodes: BTreeMap<String, u64>,
    decoded_bytes: u64,
    decode_amplification: Option<f64>,
    cache_hits: u64,
    decodes_avoided: u64,
    pinned_bytes: u64,
    errors: u64,
    threads_woken: u64,
    prefetch: BTreeMap<String, PrefetchJson>,
    prefetched_dentries: u64,
    requests: BTreeMap<String, RequestJson>,
}

/// Contents that were pushed into the page cache before a read.
#[derive(Serialize)]
struct PrefetchJson {
    count: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct RequestJson {
    count: u64,
    seconds: f64,
    /// Counts by upper bounds in seconds.
    durations: Classes,
}

pub fn run(args: &Args) -> Result<Exit, Failure> {
    let text = fuse::query_stats(&args.dir).map_err(Failure::Mount)?;
    if args.prometheus {
        let mut out = Out::new();
        let labels = MetricLabels::of_mount(&args.dir).map_err(Failure::Mount)?;
        out.write_all(labels.added_to(&text).as_bytes())?;
        out.finish()?;
        return Ok(Exit::Done);
    }
    let stats = StatsJson::of(&Samples::parse(&text));
    match args.json {
        true => print_document(&stats)?,
        false => print(&stats)?,
    }
    Ok(Exit::Done)
}

impl StatsJson {
    fn of(samples: &Samples<'_>) -> Self {
        let (served, fetched) = (samples.count("kiln_read_size_bytes_sum"), samples.count("kiln_fetch_size_bytes_sum"));
        let decoded = samples.count("kiln_decoded_bytes_total");
        let per_served = |bytes: u64| (served > 0).then(|| bytes as f64 / served as f64);
        const COUNT: &str = "kiln_request_duration_seconds_count";
        const SUM: &str = "kiln_request_duration_seconds_sum";
        const BUCKET: &str = "kiln_request_duration_seconds_bucket";
        let requests = samples.by_label(COUNT, "request").map(|(request, count)| {
            let seconds = samples.with_label(SUM, "request", request);
            let durations = samples.classes(BUCKET, Some(("request", request)));
            (request.to_owned(), RequestJson { count: count as u64, seconds: seconds.unwrap_or_default(), durations })
        });
        let ways = samples.by_label("kiln_decodes_total", "way").map(|(way, count)| (way.to_owned(), count as u64));
        let prefetch = samples.by_label("kiln_prefetch_total", "kind").map(|(kind, count)| {
            let bytes = samples.with_label("kiln_prefetch_bytes_total", "kind", kind).unwrap_or_default();
            (kind.to_owned(), PrefetchJson { count: count as u64, bytes: bytes as u64 })
        });
        Self {
            reads: samples.count("kiln_read_size_bytes_count"),
            served_bytes: served,
            read_sizes: samples.classes("kiln_read_size_bytes_bucket", None),
            fetches: samples.count("kiln_fetch_size_bytes_count"),
            fetched_bytes: fetched,
            fetch_sizes: samples.classes("kiln_fetch_size_bytes_bucket", None),
            fetch_amplification: per_served(fetched),
            decodes: ways.collect(),
            decoded_bytes: decoded,
            decode_amplification: per_served(decoded),
            cache_hits: samples.count("kiln_cache_hits_total"),
            decodes_avoided: samples.count("kiln_decodes_avoided_total"),
            pinned_bytes: samples.count("kiln_pinned_bytes"),
            errors: samples.count("kiln_errors_total"),
            threads_woken: samples.count("kiln_threads_woken_total"),
            prefetch: prefetch.collect(),
            prefetched_dentries: samples.count("kiln_prefetch_dentries_total"),
            requests: requests.collect(),
        }
    }
}

fn print(stats: &StatsJson) -> Result<(), Failure> {
    let mut out = Out::new();
    let times =
        |amplification: Option<f64>| amplification.map_or(String::new(), |a| format!(", {a:.2} of what is served"));
    writeln!(out, "served    {} in {} reads", Human(stats.served_bytes), stats.reads)?;
    let fetched = Human(stats.fetched_bytes);
    writeln!(out, "fetched   {fetched} in {} reads of the image{}", stats.fetches, times(stats.fetch_amplification))?;
    let ways: Vec<_> = stats.decodes.iter().map(|(way, count)| format!("{count} {way}")).collect();
    let decodes: u64 = stats.decodes.values().sum();
    let decoded = Human(stats.decoded_bytes);
    writeln!(
        out,
        "decoded   {decoded} from {decodes} streams{}: {}",
        times(stats.decode_amplification),
        ways.join(", ")
    )?;
    let pinned = Human(stats.pinned_bytes);
    writeln!(out, "cache     {} hits, {} decodes avoided, {pinned} pinned", stats.cache_hits, stats.decodes_avoided)?;
    let pushed =
        stats.prefetch.iter().map(|(kind, pushed)| format!("{} {kind} ({})", pushed.count, Human(pushed.bytes)));
    let prefetched: Vec<_> = pushed.chain([format!("{} dentries", stats.prefetched_dentries)]).collect();
    writeln!(out, "prefetch  {}", prefetched.join(", "))?;
    writeln!(out, "errors    {}", stats.errors)?;
    writeln!(out, "threads   {} times one was woken to receive while others answered", stats.threads_woken)?;
    writeln!(out, "\nrequest          count     mean us   99 % below us")?;
    for (name, request) in stats.requests.iter().filter(|(_, request)| request.count > 0) {
        let mean = request.seconds / request.count as f64 * 1e6;
        let below = percentile(&request.durations, request.count);
        writeln!(out, "{name:<10} {:>11} {mean:>11.1} {below:>15}", request.count)?;
    }
    out.finish()
}

/// Returns the bound in microseconds below which 99 of 100 requests are.
fn percentile(durations: &Classes, count: u64) -> String {
    let mut bounds: Vec<(f64, u64)> =
        durations.iter().map(|(bound, count)| (bound.parse().unwrap_or(f64::INFINITY), *count)).collect();
    bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut seen = 0;
    for (bound, requests) in bounds {
        seen += requests;
        if seen * 100 >= count * 99 {
            return format!("{:.0}", bound * 1e6);
        }
    }
    "-".into()
}
