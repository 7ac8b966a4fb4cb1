# SPDX-License-Identifier: MIT
# The page at / (server/page/index.html) as C: its bytes, and the policy under which a browser runs
# its one script and its one style and nothing else, for their SHA-256 are named.
#
#   cmake -DPAGE=index.html -DOUT=page_data.c -P cmake/page.cmake      the file
#   include(cmake/page.cmake); kvern_embed_page(target)                the same in a build

# Base64 of an even number of hexadecimal digits.
function(kvern_base64 hex out)
    set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
    string(LENGTH "${hex}" digits)
    set(text "")
    foreach(at RANGE 0 ${digits} 6)
        string(SUBSTRING "${hex}" ${at} 6 group)
        string(LENGTH "${group}" count)
        if(count EQUAL 0)
            break()
        endif()
        string(SUBSTRING "${group}0000" 0 6 whole)
        math(EXPR bits "0x${whole}")
        foreach(shift 18 12 6 0)
            math(EXPR index "(${bits} >> ${shift}) & 63")
            string(SUBSTRING "${alphabet}" ${index} 1 letter)
            if((count LESS 6 AND shift EQUAL 0) OR (count LESS 4 AND shift EQUAL 6))
                set(letter "=")
            endif()
            string(APPEND text "${letter}")
        endforeach()
    endforeach()
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

# The hash of what stands between <tag> and </tag>, as a policy names it.
function(kvern_page_hash page tag out)
    string(FIND "${page}" "<${tag}>" from)
    string(FIND "${page}" "</${tag}>" to)
    if(from EQUAL -1 OR to EQUAL -1)
        message(FATAL_ERROR "The page has no <${tag}>")
    endif()
    string(LENGTH "<${tag}>" length)
    math(EXPR from "${from} + ${length}")
    math(EXPR length "${to} - ${from}")
    string(SUBSTRING "${page}" ${from} ${length} text)
    string(SHA256 hex "${text}")
    kvern_base64(${hex} base64)
    set(${out} "'sha256-${base64}'" PARENT_SCOPE)
endfunction()

function(kvern_write_page page out)
    file(READ ${page} text)
    kvern_page_hash("${text}" script script)
    kvern_page_hash("${text}" style style)
    string(CONCAT policy "default-src 'none'; script-src ${script}; style-src ${style}; "
           "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
           "frame-ancestors 'none'")
    file(READ ${page} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n"
           bytes "${bytes}")
    file(WRITE ${out} "#include \"server/page/page.h\"\n\n"
         "const char server_page_policy[] =\n    \"${policy}\";\n\n"
         "const unsigned char server_page[] = {\n${bytes}};\n"
         "const size_t server_page_bytes = sizeof server_page;\n")
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
    kvern_write_page(${PAGE} ${OUT})
    return()
endif()

function(kvern_embed_page target)
    set(page ${PROJECT_SOURCE_DIR}/server/page/index.html)
    set(out ${PROJECT_BINARY_DIR}/page_data.c)
    add_custom_command(OUTPUT ${out} DEPENDS ${page} ${PROJECT_SOURCE_DIR}/cmake/page.cmake
                       COMMAND ${CMAKE_COMMAND} -DPAGE=${page} -DOUT=${out}
                               -P ${PROJECT_SOURCE_DIR}/cmake/page.cmake
                       COMMENT "Embedding the page")
    target_sources(${target} PRIVATE ${out})
endfunction()
