package dataplane

import "strconv"

// The methods of a cluster's nodes: one number each, and what messages of it are called where they are
// counted. What a method does is said where it is handled. Tests have others.
const (
	methodTicket Method = 1

	MethodSums         Method = 16
	MethodInputs       Method = 17
	MethodRows         Method = 32
	MethodShard        Method = 33
	MethodDraw         Method = 34
	MethodColumn       Method = 35
	MethodList         Method = 48
	MethodFile         Method = 49
	MethodParameters   Method = 64
	MethodPutReplica   Method = 80
	MethodListReplicas Method = 81
	MethodGetReplica   Method = 82
	MethodAudit        Method = 96
	MethodSettle       Method = 97
	MethodWatch        Method = 112
	MethodPieceRows    Method = 128
)

var methodNames = map[Method]string{
	methodTicket: "ticket", MethodSums: "gradient sum", MethodInputs: "inputs", MethodRows: "feature rows", MethodShard: "shard", MethodDraw: "rows of edges", MethodColumn: "column", MethodList: "data listing", MethodFile: "data file",
	MethodParameters: "parameters", MethodPutReplica: "checkpoint", MethodListReplicas: "checkpoint listing", MethodGetReplica: "checkpoint back",
	MethodAudit: "audit", MethodSettle: "audit settled", MethodWatch: "watch",
	MethodPieceRows: "rows of pieces",
}

// String returns what messages of a method are called.
func (m Method) String() string {
	if name := methodNames[m]; name != "" {
		return name
	}
	return "method " + strconv.Itoa(int(m))
}
