"""The HTTP doors of a node. Handlers are functions over broker calls; nothing here knows sockets, files or clocks."""
