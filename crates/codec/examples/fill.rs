//! Measures how well and how fast an encoder fills pclusters: `fill METHOD[,LEVEL] PCLUSTER
//! FILE...`
//!
//! Every file is one part: the encoder is reset, and the file is filled front to back. Text that
//! does not compress is stored, one pcluster length at a time. Each pcluster is decoded and
//! compared, outside the measured time. The output is the ratio (input by 4 KiB blocks used), input
//! per second of CPU time, and encodes per pcluster.

use kiln_codec::{DecodeLimits, Decoder, Encoder, Spec, Want};
use std::time::Duration;
use std::{env, error::Error, fs};

const BLOCK_LEN: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [method, pcluster_len, files @ ..] = args.as_slice() else {
        return Err("usage: fill METHOD[,LEVEL] PCLUSTER_BYTES FILE...".into());
    };
    let spec = Spec::parse(method, pcluster_len.parse()?)?;
    let mut codec = Codec {
        spec,
        encoder: Encoder::new(&spec)?,
        decoder: Decoder::new(DecodeLimits::default()),
        out: vec![0; spec.pcluster_len as usize],
    };
    let mut total = Total::default();
    for file in files {
        total.add_file(&fs::read(file)?, &mut codec)?;
    }
    let ratio = total.input as f64 / (total.blocks * BLOCK_LEN) as f64;
    let speed = total.input as f64 / 1e6 / total.cpu.as_secs_f64();
    let encodes = codec.encoder.encodes() as f64 / total.pclusters as f64;
    let fill = total.produced as f64 / total.room as f64;
    println!(
        "{method:<10} {pcluster_len:>8}  ratio {ratio:6.3}  {speed:7.1} MB/s  {encodes:5.2} encodes  fill {fill:.4}"
    );
    Ok(())
}

/// Encoder and decoder of a method.
struct Codec {
    spec: Spec,
    encoder: Encoder,
    decoder: Decoder,
    /// Buffer for a pcluster.
    out: Vec<u8>,
}

#[derive(Default)]
struct Total {
    input: usize,
    blocks: usize,
    pclusters: usize,
    produced: usize,
    room: usize,
    cpu: Duration,
}

impl Total {
    fn add_file(&mut self, file: &[u8], codec: &mut Codec) -> Result<(), Box<dyn Error>> {
        let Codec { spec, encoder, decoder, out } = codec;
        let mut plain = Vec::new();
        let mut rest = file;
        encoder.reset();
        while !rest.is_empty() {
            let start = cpu_time();
            let filled = encoder.fill(rest, out)?;
            self.cpu += cpu_time() - start;
            self.pclusters += 1;
            let consumed = if filled.consumed == 0 {
                let stored = rest.len().min(spec.pcluster_len as usize);
                self.blocks += stored.div_ceil(BLOCK_LEN);
                stored
            } else {
                plain.resize(filled.consumed, 0);
                decoder.decode(spec.method.algorithm(), &out[..filled.produced], &mut plain, Want::Whole)?;
                assert_eq!(plain, rest[..filled.consumed], "decoded bytes differ");
                self.blocks += filled.produced.div_ceil(BLOCK_LEN);
                if filled.consumed < rest.len() {
                    self.produced += filled.produced;
                    self.room += out.len();
                }
                filled.consumed
            };
            rest = &rest[consumed..];
        }
        self.input += file.len();
        Ok(())
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("CPU time is never negative")
}
