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

// nodeCodes are the meanings of these codes.
var nodeCodes = []Meaning{
	{
		NodeClaimed, "The agent does not manage the node yet.", "The agent is starting, or another one manages the node.",
		"wait for the other agent's end, or remove the other release",
	},
	{
		PluginMissing, "The plugin's programs are missing, or differ from the agent's.",
		"The directory is not writable, or another program changed files.", "correct the cause in the message",
	},
	{
		CredentialsInvalid, "The plugin's credentials are missing or not valid.", "The API server does not answer, or a clock is wrong.",
		"correct the cause in the message",
	},
	{BackendUnusable, "The kernel can't apply the rules.", "A netfilter module is missing.", "load the module, or choose another backend"},
	{
		LookupsUnanswered, "The agent does not answer the plugin's requests.", "The agent has not read the node's pods yet.",
		"wait a minute, then check the API server",
	},
	{
		EntryMissing, "The runtime's CNI configuration lacks an up-to-date capture-cni entry.",
		"The primary plugin is missing, or another program owns the file.", "correct the cause in the message",
	},
	{
		EntryNotLoaded, "The runtime has not loaded the entry, or does not answer.",
		"The runtime loads another file, or reads the directory late.", "restart the runtime, or use another mode",
	},
	{
		EntryContended, "Another program keeps removing the entry.", "Two programs write the runtime's CNI configuration.",
		"find the other program that writes the configuration, or use another mode",
	},
	{EntryRepaired, "The agent restored its entry in the last ten minutes.", "Another program wrote the CNI configuration.", "none"},
	{
		CredentialsUnsaved, "A reboot deletes the plugin's only credentials.", "The state directory's disk is full or read-only.",
		"free the state directory's disk, or make it writable",
	},
	{NoTProxy, "Pods with interceptionMode TPROXY can't start.", "A kernel module is missing.", "load the module, if meshed pods need it"},
	{NoIPv6, "Meshed pods with IPv6 addresses can't start.", "A kernel module is missing.", "load the module, if meshed pods need it"},
	{
		IPTablesChosen, "Backend auto chose iptables, so the node has no guard.", "The kernel lacks a module of nftables.",
		"load the module, if meshed pods need it",
	},
	{
		LeftOnNode, "The removal left the plugin on the node.", "The runtime still needs the plugin to delete pods.",
		"delete the plugin once the captured pods have ended",
	},
	{
		PodsRepaired, "The guard repaired running pods within the last hour.", "The pods started uncaptured, or their rules were changed.",
		"run kubectl capture-cni explain for those pods",
	},
	{
		EventsDropped, "The agent dropped Events about pods.", "Too many Events waited, or the API server refused them.",
		"read the agent's log, which has each ADD and repair",
	},
	{
		NoDropIns, "The runtime loads no drop-ins, so mode dropin fails.", "The runtime is older than containerd 2.1 or CRI-O 1.33.",
		"use mode insert, or upgrade the runtime",
	},
	{
		AnnotationsMissing, "The runtime passes no annotations, so every pod is looked up.",
		"The runtime is older than containerd 1.5 or CRI-O 1.29.", "upgrade the runtime, if the requests are too many",
	},
	{RuntimeUnknown, "The container runtime is neither containerd nor CRI-O.", "The node runs another runtime.", "use containerd or CRI-O"},
	{
		DirectoriesUnknown, "The runtime's CNI directories are not known.", "The runtime has no socket and no known configuration.",
		"compare --net-dir and --bin-dir with the runtime's directories",
	},
	{
		NetDirWrong, "The runtime reads CNI configurations from another directory.",
		"The platform's value differs from the runtime's configuration.", "set --net-dir to the directory in the message",
	},
	{
		BinDirWrong, "The runtime executes plugins from another directory.", "The platform's value differs from the runtime's configuration.",
		"set --bin-dir to the directories in the message",
	},
	{
		ManyLists, "The runtime would load the primary list next to the agent's.", "containerd's max_conf_num is not 1.",
		"set max_conf_num to 1, or use another mode",
	},
	{
		DirectoryMissing, "A directory that the agent writes does not exist.", "The path is wrong, or not mounted.",
		"mount the directory, or set the right path",
	},
	{
		WriteDenied, "A security module denies the agent access to a directory.", "AppArmor or SELinux confines the agent.",
		"allow the access, or run unconfined agents (appArmorProfile, seLinuxOptions)",
	},
	{
		ReadOnly, "The agent can't write a directory.", "The directory is on a read-only image or mount.",
		"mount the directory writable, or use the platform's documented directory",
	},
	{SELinux, "SELinux is enforcing on the node.", "The distribution enables SELinux.", "run the agents with seLinuxOptions.type=spc_t"},
	{
		FileModes, "CNI configurations are more open than the CIS benchmark allows.", "The files' owner chose another mode than 0600.",
		"set the mode 0600, or ask the owner to",
	},
	{
		NoBootFiles, "Nothing recreates the entry of mode multus-chain at boot.", "--tmpfiles-dir is empty.",
		"set --tmpfiles-dir, if a reboot empties the entry's directory",
	},
	{
		StatusIgnored, "Mode multus-chain ignores the key status.", "Multus passes neither STATUS nor CHECK to its chain.",
		"remove status from the entry's keys",
	},
	{
		ChainSkipped, "Multus skips the auxiliary chain.", "A file in the chain's directory is broken.",
		"ask the file's owner to correct the file",
	},
	{ListWaiting, "The runtime has no usable primary list yet.", "The primary plugin is not installed yet.", "none; the agent waits"},
	{
		ListUnusable, "The primary list can't take the entry.", "The list is broken, or of an unsupported version.",
		"correct the list, or ask its owner to",
	},
	{
		ListUncovered, "The runtime may load a list without an entry.", "CRI-O skips lists whose programs are missing.",
		"delete that list, or name every plugin directory in --bin-dir",
	},
	{MultusPrimary, "Every pod costs an API request.", "The primary list is of Multus, which passes no annotations.", "consider mode multus"},
	{ModeRefused, "The mode does not fit the primary list.", "The list's form excludes an entry in this mode.", "set another --mode"},
	{KernelUntested, "The kernel was not tested.", "The command did not run as root on the node.", "run the command as root on the node"},
	{
		CiliumExclusive, "Cilium removes the entries of other plugins.", "cni.exclusive is set, and the runtime loads no drop-ins.",
		"set cni.exclusive=false in Cilium's values, or use mode dropin",
	},
	{
		SocketBalancing, "Sidecars see the address of a Service's backend.", "Cilium or Calico balances connections at pods' sockets.",
		"limit balancing to the node's own sockets",
	},
	{BesideIstioCNI, "istio-cni captures the same pods.", "istio-cni is still installed.", "follow deploy/guides/migrate-istio-cni.md"},
	{OtherMesh, "Another mesh's plugin is in the cluster or list.", "Two meshes are installed.", "give no pod the proxies of both meshes"},
	{AmbientMode, "Istio's ambient mode is enabled.", "istio-cni or ztunnel runs in ambient mode.", "disable ambient mode, or keep istio-cni"},
}
