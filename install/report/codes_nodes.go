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
		NodeClaimed, "The agent does not manage the node yet.",
		"It has just started, or another agent or release manages the node.",
		"wait for the other agent to end, or remove the other release",
	},
	{
		PluginMissing, "The plugin's programs are missing, or differ from the agent's copy.",
		"The agent can't write the directory, or another program changed it.", "correct the cause that the message names",
	},
	{
		CredentialsInvalid, "The plugin's credentials are missing or not valid.",
		"The API server does not answer, or a clock is wrong.", "correct the cause that the message names",
	},
	{
		BackendUnusable, "The kernel can't apply the rules of the chosen backend.",
		"A netfilter module is missing.", "load the module, or choose another backend",
	},
	{
		LookupsUnanswered, "The agent does not answer the plugin's requests of pods.",
		"It has not read the node's pods yet.", "wait; if it stays, check the API server",
	},
	{
		EntryMissing, "The runtime's CNI configuration lacks an up-to-date capture-cni entry.",
		"No primary plugin is installed, or another program owns the file.", "correct the cause that the message names",
	},
	{
		EntryNotLoaded, "The runtime has not loaded the entry, or does not answer.",
		"It loads another file, or has not read the directory yet.", "restart the runtime, or use another mode",
	},
	{
		EntryContended, "Another program keeps removing the entry.",
		"That program rewrites the runtime's network configuration.", "find the program that writes there, or use another mode",
	},
	{
		EntryRepaired, "The agent added its entry again within the last ten minutes.",
		"Another program wrote the network configuration.", "none",
	},
	{
		CredentialsUnsaved, "A reboot empties the only directory with the plugin's credentials.",
		"The disk of the state directory is full or read-only.", "free space on that disk, or make it writable",
	},
	{
		NoTProxy, "Pods with interceptionMode TPROXY can't start on the node.",
		"A kernel module is missing.", "load the module, if pods of the mesh need it",
	},
	{
		NoIPv6, "Pods of the mesh with IPv6 addresses can't start on the node.",
		"A kernel module is missing.", "load the module, if pods of the mesh need it",
	},
	{
		IPTablesChosen, "Backend auto chose iptables, so the node has no guard.",
		"The kernel lacks a module of nftables.", "load the module, if pods of the mesh need it",
	},
	{
		LeftOnNode, "The removal left the plugin on the node.",
		"The runtime needs it to delete pods that it captured.", "delete it once those pods have ended",
	},
	{
		PodsRepaired, "The guard repaired running pods within the last hour.",
		"They started uncaptured, or their rules were changed.", "run kubectl capture-cni explain for those pods",
	},
	{
		NoDropIns, "The runtime loads no drop-in, which mode dropin needs.",
		"It is older than containerd 2.1 or CRI-O 1.33.", "use mode insert, or upgrade the runtime",
	},
	{
		AnnotationsMissing, "The runtime passes no annotations, so every pod is looked up.",
		"It is older than containerd 1.5 or CRI-O 1.29.", "upgrade the runtime, if the requests are too many",
	},
	{
		RuntimeUnknown, "The container runtime is neither containerd nor CRI-O.",
		"The node runs another runtime.", "use containerd or CRI-O",
	},
	{
		DirectoriesUnknown, "Nothing says which directories the runtime reads.",
		"The runtime has no socket and no known configuration file.", "check that --net-dir and --bin-dir are the runtime's",
	},
	{
		NetDirWrong, "The runtime reads network configurations in another directory.",
		"The platform's value differs from the runtime's configuration.", "use --net-dir with the directory that the message names",
	},
	{
		BinDirWrong, "The runtime executes plugins in another directory.",
		"The platform's value differs from the runtime's configuration.", "use --bin-dir with the directories that the message names",
	},
	{
		ManyLists, "The runtime would load the primary list next to the agent's.",
		"max_conf_num of containerd is not 1.", "set it to 1, or use another mode",
	},
	{
		DirectoryMissing, "A directory that the agent writes to does not exist.",
		"The path is wrong, or not mounted.", "mount it, or set the right directory",
	},
	{
		WriteDenied, "A security module forbids the agent to write a directory.",
		"AppArmor or SELinux confines the agent.", "allow it, or run the agents unconfined (appArmorProfile, seLinuxOptions)",
	},
	{
		ReadOnly, "A directory that the agent writes to can't be written to.",
		"It is on a read-only image, or mounted read-only.", "mount it writable, or use the directory of the platform's documentation",
	},
	{SELinux, "SELinux is enforcing on the node.", "The distribution enables it.", "run the agents with seLinuxOptions.type=spc_t"},
	{
		FileModes, "Network configurations are more open than the CIS benchmark allows.",
		"Their owner wrote them with another mode than 0600.", "set the mode 0600, or ask the owner to",
	},
	{
		NoBootFiles, "Nothing recreates the entry of mode multus-chain at boot.",
		"--tmpfiles-dir is empty.", "set --tmpfiles-dir, if that directory is emptied at boot",
	},
	{
		StatusIgnored, "The key status has no effect in mode multus-chain.",
		"Multus passes neither STATUS nor CHECK on to its chain.", "remove it from the entry's keys",
	},
	{
		ChainSkipped, "Multus skips the whole auxiliary chain.",
		"A file in its directory is broken.", "ask the owner of the file to correct it",
	},
	{
		ListWaiting, "The runtime has no usable primary list yet.",
		"The primary network plugin is not installed yet.", "none; the agent waits for it",
	},
	{
		ListUnusable, "The primary list can't take the entry.",
		"It is broken, or of an unsupported version.", "correct it, or ask its owner to",
	},
	{
		ListUncovered, "The runtime may load a list without an entry.",
		"CRI-O skips a list whose programs are missing.", "delete that list, or name every directory of plugins in --bin-dir",
	},
	{
		MultusPrimary, "The primary list belongs to Multus, which passes no annotations.",
		"Multus is the cluster's primary plugin.", "consider mode multus, because otherwise every pod costs an API read",
	},
	{
		ModeRefused, "The primary list can't take an entry in this mode.",
		"The mode does not fit that kind of file.", "set another mode with --mode",
	},
	{KernelUntested, "The kernel was not tested.", "The command did not run as root on the node.", "run it on the node, as root"},
	{
		CiliumExclusive, "Cilium removes the entries of other plugins.",
		"cni.exclusive is set, and the runtime loads no drop-ins.", "set cni.exclusive=false in Cilium's values, or use mode dropin",
	},
	{
		SocketBalancing, "Sidecars see the address of a Service's backend.",
		"Cilium or Calico balances connections at the sockets of pods.",
		"limit it to the node's own sockets, in Cilium's or Calico's settings",
	},
	{BesideIstioCNI, "istio-cni captures the same pods.", "It is still installed.", "follow deploy/guides/migrate-istio-cni.md"},
	{
		OtherMesh, "Another mesh's plugin is in the cluster or in the list.",
		"Two meshes are installed.", "give no pod the proxies of both meshes",
	},
	{
		AmbientMode, "Istio's ambient mode is enabled.",
		"istio-cni or ztunnel runs with ambient mode.", "disable ambient mode, or keep istio-cni",
	},
}
