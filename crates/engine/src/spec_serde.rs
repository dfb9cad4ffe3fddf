//! Algorithms in serialised settings: by their names, as the registries of built-in ones know them.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::congestion::{self, CongestionControl};
use crate::registry::Spec;
use crate::scheduler::{self, Scheduler};

impl<T: ?Sized> Serialize for Spec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Spec<dyn Scheduler> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        scheduler::builtin().parse(&text).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Spec<dyn CongestionControl> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        congestion::builtin().parse(&text).map_err(D::Error::custom)
    }
}
