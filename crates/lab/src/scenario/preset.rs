//! Links as they are: what a word such as `dsl` or `starlink` stands for in a path. Anything that is given
//! beside it replaces that part of it. docs/links.md has the sources.

/// A kind of link.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The word.
    pub name: &'static str,
    /// What it stands for, as `--path` has it.
    pub link: &'static str,
    /// Where its numbers come from.
    pub source: &'static str,
}

/// All of them.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "dsl",
        link: "16/1 Mbit/s, 30 ms, queue 300 packets",
        source: "an ADSL2+ tariff; first hop 19 ms with interleaving (kralo, 2023), 10 ms to a server in \
                 the country",
    },
    Preset {
        name: "vdsl",
        link: "50/10 Mbit/s, 15 ms",
        source: "a VDSL2 tariff; first hop 4 ms with vectoring (kralo, 2023), 10 ms to a server in the \
                 country",
    },
    Preset {
        name: "cable",
        link: "100/10 Mbit/s, 18 ms +-4 ms",
        source: "a DOCSIS tariff; first hop 7.5 ms (kralo, 2023), 10 ms to a server in the country",
    },
    Preset {
        name: "4g",
        link: "31/14 Mbit/s, 93 ms +-16 ms, queue 400 packets",
        source: "mean of the six 4G profiles with good signal of ERRANT (Trevisan et al., Computer Networks \
                 2020)",
    },
    Preset {
        name: "5g",
        link: "880/130 Mbit/s, 22 ms +-4 ms",
        source: "Xu et al., Understanding Operational 5G (SIGCOMM 2020): one campus, 3.5 GHz",
    },
    Preset {
        name: "starlink",
        link: "178/17 Mbit/s, 50 ms +-10 ms, outage 100 ms every 15 s",
        source: "Michel et al., A First Look at Starlink Performance (IMC 2022); reconfiguration every 15 \
                 s: Mohan et al. (WWW 2024)",
    },
    Preset {
        name: "geo",
        link: "100/10 Mbit/s, 600 ms",
        source: "the geostationary subscription of Michel et al. (IMC 2022), and its least latency",
    },
    Preset {
        name: "wifi",
        link: "50/20 Mbit/s, 30 ms +-6 ms, 0.5 %, queue 120 packets",
        source: "a Wi-Fi hop of 20 ms at the median (Pei et al., INFOCOM 2016), 10 ms to a server in the \
                 country",
    },
];

/// The one of this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
