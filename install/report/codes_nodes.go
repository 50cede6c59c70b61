// SPDX-License-Identifier: Apache-2.0

package report

// Codes of findings on a node.
const (
	NodeClaimed        Code = "node-claimed"
	PluginMissing      Code = "plugin-missing"
	CredentialsInvalid Code = "credentials-invalid"
	BackendUnusable    Code = "backend-unusable"
	LookupsUnanswered  Code = "lookups-unanswered"
	EntryMissing       Code = "entry-missing"
	EntryNotLoaded     Code = "entry-not-loaded"
	EntryContended     Code = "entry-contended"
	EntryRepaired      Code = "entry-repaired"
	CredentialsUnsaved Code = "credentials-unsaved"
	NoTProxy           Code = "no-tproxy"
	NoFence            Code = "no-fence"
	NoIPv6             Code = "no-ipv6"
	IPTablesChosen     Code = "iptables-chosen"
	LeftOnNode         Code = "left-on-node"
	PodsRepaired       Code = "pods-repaired"
	EventsDropped      Code = "events-dropped"

	NoDropIns          Code = "no-drop-ins"
	AnnotationsMissing Code = "annotations-missing"
	RuntimeUnknown     Code = "runtime-unknown"
	DirectoriesUnknown Code = "directories-unknown"
	NetDirWrong        Code = "net-dir-wrong"
	BinDirWrong        Code = "bin-dir-wrong"
	ManyLists          Code = "many-lists"
	DirectoryMissing   Code = "directory-missing"
	WriteDenied        Code = "write-denied"
	ReadOnly           Code = "read-only"
	SELinux            Code = "selinux"
	FileModes          Code = "file-modes"
	NoBootFiles        Code = "no-boot-files"
	StatusIgnored      Code = "status-ignored"
	ChainSkipped       Code = "chain-skipped"
	ListWaiting        Code = "list-waiting"
	ListUnusable       Code = "list-unusable"
	ListUncovered      Code = "list-uncovered"
	MultusPrimary      Code = "multus-primary"
	ModeRefused        Code = "mode-refused"
	KernelUntested     Code = "kernel-untested"
	CiliumExclusive    Code = "cilium-exclusive"
	SocketBalancing    Code = "socket-balancing"
	BesideIstioCNI     Code = "istio-cni"
	OtherMesh          Code = "other-mesh"
	AmbientMode        Code = "ambient-mode"
)

// nodeCodes contains the meaning of each code in this file.
var nodeCodes = []Meaning{
	{
		NodeClaimed, "The agent does not manage the node yet.",
		"The agent starts, another agent or release has the node, or the state directory fails.",
		"wait for the other agent's end, or remove the other release",
	},
	{
		PluginMissing, "The plugin's programs are missing, or differ from the agent's.",
		"The directory can't be written, or another program changed files.", "correct the cause",
	},
	{
		CredentialsInvalid, "The plugin's credentials are missing, invalid or not yet removed.",
		"The API server issues no token, or a clock is wrong.",
		"correct the cause",
	},
	{
		BackendUnusable, "The backend can't apply the rules.", "A netfilter module or iptables is missing.",
		"load the module and delete the agent's pod, or choose another backend",
	},
	{
		LookupsUnanswered, "The agent can't answer the plugin reliably.",
		"The agent has not read its node's pods, is unauthorized or can't listen.",
		"wait a minute, then check the API server",
	},
	{
		EntryMissing, "The runtime's list lacks the current entry.",
		"The primary plugin is missing, istio-cni is present, or the agent can't write the entry.",
		"correct the cause",
	},
	{
		EntryNotLoaded, "The runtime has not loaded the entry, or does not answer.",
		"The runtime loads another file, or reads the directory late.", "restart the runtime, or use another mode",
	},
	{
		EntryContended, "Another program keeps removing the entry, or in mode owned changing the list.", "",
		"find that program, or use another mode",
	},
	{EntryRepaired, "The agent restored its entry in the last ten minutes.", "Another program wrote the list.", "none"},
	{
		CredentialsUnsaved, "A reboot deletes the plugin's only credentials.", "The state directory's disk is full or read-only.",
		"free the disk, or make it writable",
	},
	{NoTProxy, "Pods with TPROXY can't start.", "A kernel module is missing.", "load the module, if meshed pods need it"},
	{NoFence, "Pods with a fence can't start.", "A kernel module is missing, or the test failed.", "load the module, if meshed pods need it"},
	{NoIPv6, "Meshed pods with captured IPv6 can't start.", "A kernel module is missing.", "load the module, if meshed pods need it"},
	{
		IPTablesChosen, "Backend auto chose iptables, so the guard is idle.", "The kernel lacks an nftables module.",
		"load the module and reboot, if you need the guard",
	},
	{
		LeftOnNode, "The removal left the plugin on the node.", "The runtime needs the plugin to delete pods.",
		"delete the plugin once pods started with it have ended",
	},
	{
		PodsRepaired, "The guard repaired pods, or tried to, within the last hour.", "",
		"read the pods' Events CaptureRepaired and CaptureMissing",
	},
	{EventsDropped, "The agent dropped Events about pods.", "", "read the agent's log"},
	{NoDropIns, "Mode dropin needs containerd 2.1, CRI-O 1.33 or newer.", "", "use mode insert, or upgrade the runtime"},
	{
		AnnotationsMissing, "Before containerd 1.5 and CRI-O 1.29, the plugin looks up each pod.", "",
		"upgrade the runtime, if requests are too many",
	},
	{RuntimeUnknown, "The container runtime is neither containerd nor CRI-O.", "", "use containerd or CRI-O"},
	{
		DirectoriesUnknown, "No socket or configuration names the runtime's CNI directories.", "",
		"compare --net-dir and --bin-dir with the runtime's",
	},
	{NetDirWrong, "The runtime reads lists from another directory.", "", "set --net-dir as the message says"},
	{BinDirWrong, "The runtime executes plugins from another directory.", "", "set --bin-dir as the message says"},
	{ManyLists, "containerd would load several lists.", "", "set max_conf_num to 1, or use another mode"},
	{DirectoryMissing, "A needed directory does not exist.", "", "mount the directory, or set the right path"},
	{
		WriteDenied, "AppArmor or SELinux denies the agent a directory.", "",
		"allow the access, or run unconfined agents (appArmorProfile, seLinuxOptions)",
	},
	{
		ReadOnly, "The agent can't write to a directory.", "The mount is read-only, or root does not own the directory.",
		"make the directory writable (addCapabilities), or use the platform's",
	},
	{SELinux, "SELinux is enforcing on the node.", "", "run the agents with seLinuxOptions.type=spc_t"},
	{FileModes, "CNI configurations have modes that the CIS benchmark forbids.", "", "set the mode 0600, or ask the owner to"},
	{
		NoBootFiles, "Nothing restores the entry of multus-chain at boot.", "",
		"set --tmpfiles-dir, if a reboot empties the directory",
	},
	{StatusIgnored, "Mode multus-chain ignores the key status.", "", "remove status from netconf"},
	{
		ChainSkipped, "Multus skips the auxiliary chain.", "A file in the chain's directory is broken.",
		"ask the file's owner to correct it",
	},
	{
		ListWaiting, "The runtime has no complete list yet.", "The primary plugin is not installed, or a file is faulty.",
		"none, or correct the named file",
	},
	{
		ListUnusable, "The primary list can't take the entry.", "The list is broken, or of an unsupported version.",
		"correct the list, or ask its owner to",
	},
	{
		ListUncovered, "The runtime may load a list without an entry.", "CRI-O skips lists whose programs are missing.",
		"delete the list if unused, or name all plugin directories in --bin-dir",
	},
	{MultusPrimary, "The runtime's network plugin is Multus.", "", "consider mode multus"},
	{ModeRefused, "The mode does not fit the primary list.", "", "set another --mode"},
	{KernelUntested, "The kernel was not tested.", "", "run the command as root on the node"},
	{CiliumExclusive, "Cilium's cni.exclusive removes other plugins' entries.", "", "set Cilium's cni.exclusive=false, or use mode dropin"},
	{
		SocketBalancing, "Sidecars see a Service's backend, not the Service.", "Cilium or Calico balances connections at pods' sockets.",
		"limit balancing to the node's sockets",
	},
	{BesideIstioCNI, "istio-cni captures the same pods.", "", "follow deploy/guides/migrate-istio-cni.md"},
	{OtherMesh, "Another mesh's plugin is in the cluster or list.", "", "give no pod the proxies of both meshes"},
	{AmbientMode, "Istio's ambient mode is enabled.", "", "disable ambient mode, or keep istio-cni"},
}
