// ns-3's speed on the same question that Ropewalk's speed benchmark asks: bulk TCP over a link of 100 Mbit/s with
// 10 ms one way and a drop-tail queue of 500 packets. One flow per path, two paths (ns-3 has no Multipath TCP), so
// that both simulate the same number of packets per second of virtual time.
// Prints simulated data segments per second of wall time.
//
//   ns3_bulk [--megabytes=200] [--rate=100Mbps] [--delay=10ms] [--paths=2]

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

namespace {
constexpr uint32_t kSegment = 1448;
constexpr uint16_t kPort = 5000;
}  // namespace

int main(int argc, char** argv) {
  uint64_t megabytes = 200;
  std::string rate = "100Mbps";
  std::string delay = "10ms";
  uint32_t paths = 2;
  ns3::CommandLine command;
  command.AddValue("megabytes", "payload per path, in units of 10^6 bytes", megabytes);
  command.AddValue("rate", "link rate", rate);
  command.AddValue("delay", "one-way delay", delay);
  command.AddValue("paths", "links, with one flow each", paths);
  command.Parse(argc, argv);

  using namespace ns3;
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));

  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", StringValue(rate));
  link.SetChannelAttribute("Delay", StringValue(delay));
  link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("500p"));

  InternetStackHelper stack;
  Ipv4AddressHelper addresses;
  addresses.SetBase("10.1.0.0", "255.255.255.0");
  ApplicationContainer sinks;
  for (uint32_t path = 0; path < paths; ++path) {
    NodeContainer ends;
    ends.Create(2);
    const NetDeviceContainer devices = link.Install(ends);
    stack.Install(ends);
    const Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    addresses.NewNetwork();

    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
    sinks.Add(sink.Install(ends.Get(1)));
    BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), kPort));
    bulk.SetAttribute("MaxBytes", UintegerValue(megabytes * 1000000));
    bulk.Install(ends.Get(0));
  }

  const auto begin = std::chrono::steady_clock::now();
  Simulator::Stop(Hours(10));
  Simulator::Run();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;

  uint64_t received = 0;
  for (uint32_t i = 0; i < sinks.GetN(); ++i) {
    received += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
  }
  const double segments = static_cast<double>(received) / kSegment;
  std::cout << "ns-3: " << received / 1000000 << " MB in " << segments << " data segments, " << wall.count()
            << " s of wall time: " << static_cast<uint64_t>(segments / wall.count())
            << " data segments per second\n";
  Simulator::Destroy();
  return received == paths * megabytes * 1000000 ? 0 : 1;
}
