graph [
  directed 1
  node [
    id 0
    label "0"
  ]
  node [
    id 1
    label "5"
  ]
  node [
    id 2
    label "7"
  ]
  node [
    id 3
    label "12"
  ]
  edge [
    source 0
    target 1
    weight 0.5
  ]
  edge [
    source 1
    target 2
    weight 2.0
  ]
  edge [
    source 3
    target 0
    weight 1.0
  ]
]
