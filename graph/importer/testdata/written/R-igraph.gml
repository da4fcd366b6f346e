Creator "igraph version 1.3.4.9022 R"
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
  edge
  [
    source 2
    target 0
    weight 1
  ]
]
