Creator "igraph version 0.10.2 Tue Nov 24 12:24:35 2026"
Version 1
graph
[
  directed 1
  node
  [
    id 0
    name "anna"
  ]
  node
  [
    id 1
    name "bob"
  ]
  node
  [
    id 2
    name "carl"
  ]
  edge
  [
    source 0
    target 1
    weight 0.5
  ]
  edge
  [
    source 1
    target 2
    weight 2
  ]
]
