//! Much data both ways at once, compared by hash: 1 GB each way.

use std::io::{Read, Write};

use ropewalk_host::kernel;
use ropewalk_host::network::Side;
use sha2::{Digest, Sha256};

use crate::need_kernel;
use crate::stage::{BLOCK, Order, Setup, Stage, block};

/// Bytes each way.
const TOTAL: u64 = 1_000_000_000;

#[test]
fn both_ways_at_once() {
    need_kernel!();
    let total = TOTAL;
    for engine in [Side::Client, Side::Server] {
        let case = format!("{total} bytes each way, engine {engine:?}");
        let (stage, socket) = Stage::meet(Setup { hash: true, ..Setup::new(engine, 2) });
        stage.order(Order::Stream(total));
        stage.order(Order::Finish);
        let (kernel_sent, kernel_received) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut hash = Sha256::new();
                for at in 0..total.div_ceil(BLOCK as u64) {
                    let mut block = block(at);
                    block.truncate((total - at * BLOCK as u64).min(BLOCK as u64) as usize);
                    (&socket).write_all(&block).expect("the engine takes it");
                    hash.update(&block);
                }
                hash.finalize()
            });
            let mut hash = Sha256::new();
            let mut buffer = vec![0; 256 << 10];
            let mut received = 0;
            loop {
                let len = (&socket).read(&mut buffer).expect("bytes, or an end");
                if len == 0 {
                    break;
                }
                received += len as u64;
                hash.update(&buffer[..len]);
            }
            assert_eq!(received, total, "{case}");
            (sender.join().expect("no panic"), hash.finalize())
        });
        let info = kernel::info(&socket).unwrap().expect("Multipath TCP");
        assert_eq!((info.extra_subflows, info.fallback), (1, false), "{case}");
        stage.wait(&case, |seen| seen.count == total);
        drop(socket);
        stage.wait(&case, |seen| seen.closed);
        let seen = stage.end(&case);
        // Both send the same stream.
        assert_eq!(kernel_received, kernel_sent, "{case}");
        assert_eq!(seen.hash.expect("it was asked for").finalize(), kernel_sent, "{case}");
        assert!(seen.multipath, "{case}");
    }
}
