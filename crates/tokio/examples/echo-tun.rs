//! An echo server on the engine, behind TUN devices: any TCP program of this machine can talk to it,
//! Multipath TCP's too.
//!
//! As root, in a namespace of your own, so that nothing of the machine's is touched:
//!
//! ```text
//! unshare -n
//! ip link set lo up; ip mptcp limits set subflows 2 add_addr_accepted 2
//! cargo run -p ropewalk-tokio --example echo-tun -- 2 &
//! echo hello | mptcpize run nc -N 10.126.0.2 7
//! ```
//!
//! The argument is the number of paths (1). On path N the engine has 10.126.N.2 and the kernel 10.126.N.3.

use std::net::IpAddr;

use ropewalk_tokio::{MptcpListener, Network, Path, tun};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let paths = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let mut builder = Network::builder();
    for path in 0..paths {
        let name = format!("rope{path}");
        let (engine, kernel): (IpAddr, IpAddr) = ([10, 126, path, 2].into(), [10, 126, path, 3].into());
        builder = builder.path(Path::tun(&name, 1, engine)?);
        tun::bring_up(&name, 1500, kernel, 31)?;
    }
    let network = builder.build()?;
    let listener = MptcpListener::bind(&network, ([0, 0, 0, 0], 7).into())?;
    println!("echoing at 10.126.0.2, port 7");
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            let copied = tokio::io::copy(&mut reader, &mut writer).await;
            let Some(info) = writer.info() else { return };
            println!(
                "{peer}: {copied:?} bytes, {} subflows, Multipath TCP: {}",
                info.subflows.len(),
                info.multipath
            );
        });
    }
}
