//! `ropewalkd install`: what a service of systemd needs, from nothing.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ropewalk_algorithms::Registries;
use ropewalk_command_line::settings::Given;
use ropewalk_command_line::{Failure, output};
use ropewalk_gateway::config;
use ropewalk_gateway::tls::keys;
use ropewalk_settings::diagnostic::Diagnostic;
use ropewalk_settings::shape::{Field, Files};
use serde_json::json;

use crate::gateway::GatewayTables;
use crate::proxy::ProxyTables;
use crate::template;

/// Set up a service of systemd: its unit, its configuration and its key
///
/// Writes the unit, a configuration with every key and what is given as options, and a key where TLS needs
/// one. Files that options name (keys, certificates, users) are copied to /etc/ropewalk/keys. A configuration
/// that is there isn't changed. The unit's user is made by systemd (DynamicUser).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ropewalkd install gateway --listen 192.0.2.1:5124 --convert internet
  ropewalkd install proxy --via wlan0 --via wwan0,metered \\
      --gateway 192.0.2.1:5124 --gateway-certificate gateway.pub --now
  ropewalkd install gateway --listen 192.0.2.1:443 --to 127.0.0.1:8443 --now
  ropewalkd install proxy")]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The service ropewalk-gateway
    #[command(after_help = "Examples:
  ropewalkd install gateway --listen 192.0.2.1:5124 --convert internet
  ropewalkd install gateway --listen 192.0.2.1:443 --to 127.0.0.1:8443 --now")]
    Gateway(Box<GatewayOptions>),
    /// The service ropewalk-proxy
    #[command(after_help = "Examples:
  ropewalkd install proxy
  ropewalkd install proxy --via wlan0 --via wwan0,metered \\
      --gateway 192.0.2.1:5124 --gateway-certificate gateway.pub --now")]
    Proxy(Box<ProxyOptions>),
}

#[derive(Debug, clap::Args)]
struct GatewayOptions {
    #[command(flatten)]
    given: Given<GatewayTables>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
struct ProxyOptions {
    /// An uplink, as for `ropewalkd proxy`; repeat it for each
    #[arg(long, value_name = "INTERFACE[,...]")]
    via: Vec<String>,
    #[command(flatten)]
    given: Given<ProxyTables>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
struct How {
    /// Enable and start the service
    #[arg(long)]
    now: bool,
    /// The folder that will be the system's root, for images
    #[arg(long, value_name = "FOLDER", default_value = "/", conflicts_with = "now")]
    root: PathBuf,
    /// Report as JSON
    #[arg(long)]
    json: bool,
}

/// What is to be written.
struct Service {
    /// `gateway` or `proxy`.
    kind: &'static str,
    unit: &'static str,
    root: PathBuf,
    files: Vec<PathBuf>,
}

/// Where packages have their units.
const OF_PACKAGES: [&str; 2] = ["lib/systemd/system", "usr/lib/systemd/system"];
/// Where units name the program.
const PROGRAM: &str = "/usr/bin/ropewalkd";

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::other(format!("{}: {error}", path.display()))
}

impl Service {
    fn folder(&self) -> PathBuf {
        self.root.join("etc/ropewalk")
    }

    fn config(&self) -> PathBuf {
        self.folder().join(format!("{}.toml", self.kind))
    }

    fn name(&self) -> String {
        format!("ropewalk-{}.service", self.kind)
    }

    fn write(&mut self, path: PathBuf, text: &str, mode: u32) -> Result<(), Failure> {
        fs::create_dir_all(path.parent().unwrap_or(&self.root)).map_err(failed(&path))?;
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed(&path))?;
        self.files.push(path);
        Ok(())
    }

    /// The unit, unless a package has brought it.
    fn write_unit(&mut self) -> Result<(), Failure> {
        if OF_PACKAGES.iter().any(|folder| self.root.join(folder).join(self.name()).exists()) {
            return Ok(());
        }
        let program = std::env::current_exe().map_err(Failure::other)?;
        let is_packages = self.root != Path::new("/") || program == Path::new(PROGRAM);
        let program = if is_packages { PROGRAM.into() } else { program.display().to_string() };
        let path = self.root.join("etc/systemd/system").join(self.name());
        self.write(path, &self.unit.replace(PROGRAM, &program), 0o644)
    }

    /// The folder for keys, which is root's.
    fn make_keys_folder(&self) -> Result<PathBuf, Failure> {
        let keys = self.folder().join("keys");
        fs::create_dir_all(&keys).map_err(failed(&keys))?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&keys, private).map_err(failed(&keys))?;
        Ok(keys)
    }

    /// Copies a file that an option names to the folder for keys; its name from the configuration's folder.
    fn copy(&mut self, name: &str) -> Result<String, Failure> {
        let from = Path::new(name);
        let file = from.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        let to = self.make_keys_folder()?.join(&file);
        if !to.exists() || fs::canonicalize(from).ok() != fs::canonicalize(&to).ok() {
            let text = fs::read_to_string(from).map_err(failed(from))?;
            let mode = if file.ends_with(".pub") { 0o644 } else { 0o600 };
            self.write(to, &text, mode)?;
        }
        Ok(format!("keys/{file}"))
    }

    /// A key and its certificate, if there is none.
    fn make_key(&mut self) -> Result<String, Failure> {
        let folder = self.make_keys_folder()?;
        if !folder.join(format!("{}.key", self.kind)).exists() {
            self.files.extend(keys::generate(&folder, self.kind).map_err(Failure::other)?);
        }
        Ok(format!("keys/{}.key", self.kind))
    }

    /// Replaces the names of files by those of their copies.
    fn with_copies(
        &mut self,
        given: Vec<(&'static Field, Vec<&str>)>,
    ) -> Result<Vec<(&'static Field, Vec<String>)>, Failure> {
        let mut all = Vec::new();
        for (field, words) in given {
            let read = field.files.filter(|files| *files != Files::Written);
            let copied = |word: &str| match read {
                Some(files) => {
                    let (name, rest) = files.split(word);
                    Ok(self.copy(name)? + rest)
                }
                None => Ok(word.to_string()),
            };
            let words: Result<Vec<String>, Failure> = words.into_iter().map(copied).collect();
            all.push((field, words?));
        }
        Ok(all)
    }
}

type Values = Vec<(&'static Field, Vec<String>)>;

fn borrowed(values: &Values) -> Vec<(&'static Field, Vec<&str>)> {
    values.iter().map(|(field, words)| (*field, words.iter().map(String::as_str).collect())).collect()
}

fn has(values: &Values, name: &str) -> bool {
    values.iter().any(|(field, _)| field.name == name)
}

/// The configuration's text.
fn gateway(service: &mut Service, options: &GatewayOptions) -> Result<String, Failure> {
    let mut values = service.with_copies(options.given.keys().collect())?;
    let listener = config::TABLES[0].1;
    let has_secret = ["key", "proxies", "cookie"].iter().any(|name| has(&values, name));
    if has(&values, "convert") && !has_secret {
        values.push((listener.field("key"), vec![service.make_key()?]));
        values.push((listener.field("proxies"), vec!["keys/proxy.pub".into()]));
    } else if has(&values, "proxies") && !has(&values, "key") {
        values.push((listener.field("key"), vec![service.make_key()?]));
    }
    let mut text = String::new();
    for (header, shape) in [config::TABLES[1], config::TABLES[0]] {
        template::table(&mut text, header, shape, &borrowed(&values));
    }
    Ok(text)
}

fn proxy(service: &mut Service, options: &ProxyOptions) -> Result<String, Failure> {
    let mut values = service.with_copies(options.given.keys().collect())?;
    let (header, shape) = config::proxy::TABLES[0];
    if has(&values, "gateway") && !has(&values, "gateway-cookie") && !has(&values, "gateway-key") {
        values.push((shape.field("gateway-key"), vec![service.make_key()?]));
        if !has(&values, "gateway-certificate") {
            values.push((shape.field("gateway-certificate"), vec!["keys/gateway.pub".into()]));
        }
    }
    let mut text = String::new();
    template::table(&mut text, header, shape, &borrowed(&values));
    let [(link, link_shape), (rule, rule_shape)] = [config::proxy::REPEATED[0], config::proxy::REPEATED[1]];
    for via in &options.via {
        template::table(&mut text, link, link_shape, &template::link(link_shape, via));
    }
    if options.via.is_empty() {
        template::table(&mut text, link, link_shape, &[]);
    }
    template::table(&mut text, rule, rule_shape, &[]);
    Ok(text)
}

/// What is still missing before the service can start.
fn lacks(registries: &Registries, service: &Service) -> Option<String> {
    let path = service.config();
    let error = match service.kind {
        "gateway" => config::load(&path, registries).err(),
        _ => config::proxy::load(&path).err(),
    };
    error.map(|error| error.to_string())
}

fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    let failed = |error: String| Failure::other(format!("systemctl {}: {error}", arguments.join(" ")));
    let ran = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output();
    let output = ran.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().into())),
    }
}

pub(crate) fn run(registries: &Registries, options: &Options) -> Result<(), Failure> {
    let (kind, unit, how) = match &options.what {
        What::Gateway(one) => {
            ("gateway", include_str!("../../../packaging/systemd/ropewalk-gateway.service"), &one.how)
        }
        What::Proxy(one) => {
            ("proxy", include_str!("../../../packaging/systemd/ropewalk-proxy.service"), &one.how)
        }
    };
    let mut service = Service { kind, unit, root: how.root.clone(), files: Vec::new() };
    let (path, is_empty) = match &options.what {
        What::Gateway(one) => (service.config(), one.given.options().next().is_none()),
        What::Proxy(one) => (service.config(), one.given.options().next().is_none() && one.via.is_empty()),
    };
    let is_there = path.exists();
    if is_there && !is_empty {
        return Err(Diagnostic::new(format!("{} is there already: it isn't changed", path.display()))
            .help("remove it, or leave the settings out")
            .into());
    }
    service.make_keys_folder()?;
    service.write_unit()?;
    if !is_there {
        let body = match &options.what {
            What::Gateway(one) => gateway(&mut service, one)?,
            What::Proxy(one) => proxy(&mut service, one)?,
        };
        let opening = format!(
            "# The configuration of `ropewalkd {kind}`. A key behind # has the value that it has without \
             this file, or an\n\
             # example in capitals. `ropewalkd {kind} --config {} --check` finds mistakes.\n",
            path.display()
        );
        service.write(path.clone(), &(opening + &body), 0o644)?;
    }
    let lacks = lacks(registries, &service);
    let is_live = service.root == Path::new("/");
    let name = service.name();
    if is_live && lacks.is_none() && how.now {
        systemctl(&["daemon-reload"])?;
        systemctl(&["enable", "--now", &name])?;
    } else if is_live {
        // Without systemd there is nothing to read again.
        let _ = systemctl(&["daemon-reload"]);
    }
    let next = match &lacks {
        Some(_) => format!("what is missing, then `systemctl enable --now {name}`"),
        None if how.now => "`ropewalkd status`, and `ropewalkd doctor` if something doesn't work".into(),
        None => format!("`systemctl enable --now {name}`"),
    };
    let files: Vec<String> = service.files.iter().map(|file| file.display().to_string()).collect();
    output::print(&match how.json {
        true => format!(
            "{}\n",
            json!({ "files": files, "missing": lacks, "next": next, "started": how.now && lacks.is_none() })
        ),
        false => {
            let mut text: String = files.iter().map(|file| format!("{file}\n")).collect();
            if let Some(lacks) = &lacks {
                text.push_str(&format!("missing: {lacks}\n"));
            }
            text + &format!("next: {next}\n")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_options_name_are_copied() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let mut service = Service { kind: "gateway", unit: "", root: root.clone(), files: Vec::new() };
        let tables = config::TABLES.iter().chain(config::proxy::TABLES).map(|(_, shape)| shape);
        let mut copied = 0;
        for field in tables.flat_map(|shape| shape.fields) {
            let name = format!("{}.pub", field.name);
            let from = folder.path().join(&name);
            fs::write(&from, field.name).unwrap();
            let (word, expected) = match field.files {
                Some(Files::Read) => (from.display().to_string(), format!("keys/{name}")),
                Some(Files::ReadBeforeWord) => {
                    (format!("{} tcp/8022,udp/1-2", from.display()), format!("keys/{name} tcp/8022,udp/1-2"))
                }
                Some(Files::Written) | None => (from.display().to_string(), from.display().to_string()),
            };
            let values = service.with_copies(vec![(field, vec![&word])]).unwrap();
            assert_eq!(values[0].1.concat(), expected, "{}", field.name);
            if expected.starts_with("keys/") {
                copied += 1;
                let copy = root.join("etc/ropewalk/keys").join(&name);
                assert_eq!(fs::read_to_string(copy).unwrap(), field.name);
            }
        }
        assert!(copied >= 9, "{copied} keys name files");
    }
}
